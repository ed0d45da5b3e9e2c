"""Open run folder: specification, database, lock and orders."""

import asyncio
import contextlib
import itertools
import os
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from weakref import WeakValueDictionary

import psutil

from engine.hardware.devices import visible
from engine.hardware.gpus import open_gpu_reader
from engine.protocol.base import BaseEvent
from engine.protocol.events.run import (
    LogWritten,
    PhaseChanged,
    ProgressTicked,
    RunFinished,
    RunStarted,
    WorkerRestarted,
)
from engine.protocol.json_text import parse_json
from engine.protocol.problems import Problem, Refused, StoreError, in_one_line
from engine.protocol.records.machine.hardware import Card
from engine.protocol.records.runs import Phase, RunSpec
from engine.runtime import locks
from engine.runtime.files import replace_file
from engine.storage.run_db.reader import RunReader
from engine.storage.run_db.writer import RunWriter
from engine.storage.run_folder.files import check_run_folder, clear_lock
from engine.trust.store import remember_run

SPEC = "run.json"
DATABASE = "run.db"
LOCK = "lock"
LOG = "logs/run.log"
MOST_SPEC_BYTES = 2**26
BALLAST = "ballast"
BALLAST_BYTES = 2**21
"""Disk space reserved while a run is open, to store its last events on a full disk."""
LOCK_WAIT_S = 0.1
TICK_EVERY_S = 0.25
REPEAT_EVERY_S = 1.0
BY_PERSON = "You stopped the run after this step."
CARDS_EVERY = 2
"""Number of repeated ticks per reading of the GPUs."""


@dataclass
class RunOrders:
    """Requests of the user to an active run; the training loop reads them between stages."""

    steps: int
    stop_after_step: bool = False
    stop_reason: str = BY_PERSON
    """Reason that is stored in the event if the run stops after a step."""
    holds: set[int] = field(default_factory=set)
    """Steps after whose validation the run waits, for its sweep to decide whether it continues."""
    paused: bool = False
    reviewed: bool = False
    keep: bool = False
    """Whether to save a checkpoint after this step, even if none is due."""
    rubric: str = ""
    """Source of a rubric that replaces the one the run started with; empty if none does."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def release(self, step: int) -> None:
        """Let the run continue if it waits for its sweep after the validation of this step."""
        self.holds.discard(step)
        self.changed.set()

    def stop(self, reason: str) -> None:
        """Request a stop after the current step, or at once if the run is waiting. `reason` is the
        text stored in the event of the stop."""
        self.stop_reason = reason
        self.give(stop=True)

    def give(
        self, *, paused: bool | None = None, stop: bool | None = None, reviewed: bool | None = None
    ) -> None:
        if paused is not None:
            self.paused = paused
        if stop is not None:
            self.stop_after_step = stop
        if reviewed is not None:
            self.reviewed = reviewed
        self.changed.set()

    async def until(self, met: Callable[[], bool]) -> None:
        """Wait without a timeout until `met()` is true; `met` is called first at once, then after
        each change of these orders."""
        while not met():
            self.changed.clear()
            await self.changed.wait()


@dataclass
class RunBudget:
    """Locks that all judges of a run share: costs are reserved one call at a time, and equal
    prompts are sent only once."""

    counting: asyncio.Lock = field(default_factory=asyncio.Lock)
    questions: WeakValueDictionary[str, asyncio.Lock] = field(default_factory=WeakValueDictionary)


class Run:
    """An open run folder with its lock, writer and reader. Always call `close`."""

    def __init__(
        self, folder: Path, spec: RunSpec, announce: Callable[[BaseEvent | None], None]
    ) -> None:
        """Open and lock a run folder. Raises StoreError if it contains links, Refused if another
        engine uses it."""
        check_run_folder(folder)
        self.folder = folder
        self.spec = spec
        self.config = spec.config
        self.orders = RunOrders(spec.config.train.steps)
        self.budget = RunBudget()
        self._announce = announce
        self._lock = _take_lock(folder / LOCK)
        with contextlib.ExitStack() as undo:  # a damaged run can still be repaired, or removed
            undo.callback(os.close, self._lock)
            (folder / LOG).parent.mkdir(exist_ok=True)
            _set_aside(folder / BALLAST)
            self.writer = RunWriter(folder / DATABASE, spec.id, lambda: announce(None))
            undo.callback(self.writer.close)
            self.reader = RunReader(folder / DATABASE)
            undo.pop_all()
        self.quiet: set[int] = set()
        """Steps that are sampled while an earlier one is trained; their phases are not reported."""
        self._ticked = 0.0
        self._tick: ProgressTicked | None = None
        self._cards: tuple[Card, ...] = ()
        psutil.cpu_percent()  # the first reading is meaningless

    @property
    def log_file(self) -> Path:
        return self.folder / LOG

    @property
    def project(self) -> Path:
        return self.folder.parents[1]

    async def say(self, event: BaseEvent) -> BaseEvent:
        """Store an event and return it as stored, after COMMIT."""
        return await self.writer.say(event)

    async def enter(self, step: int, phase: Phase) -> None:
        """Store the event that a phase of a step has begun, and announce no progress yet. No effect
        for a step that is sampled in advance, while an earlier one is trained."""
        if step in self.quiet:
            return
        await self.say(PhaseChanged(step=step, phase=phase))
        self.tick(step, phase, 0, 0)

    async def sampler_restarted(self, problem: Problem, attempt: int) -> None:
        """Store the event that the sampler was restarted for the `attempt`-th time; its requests
        continue."""
        await self.say(WorkerRestarted(worker="sampler", attempt=attempt, problem=problem))

    async def log(self, level: str, source: str, text: str) -> None:
        await self.say(LogWritten(level=level, source=source, text=text))  # type: ignore[arg-type]

    def tick(
        self,
        step: int,
        phase: Phase,
        done: int,
        total: int,
        words: str = "",
        in_flight: dict[int, tuple[int, int]] | None = None,
        **hardware: float,
    ) -> None:
        """Announce the progress of a phase, `done` of `total`, at most four times a second; its end
        is always announced. `words` describes the activity, `in_flight` has (finished rollouts,
        model calls so far) by group, `hardware` are further metrics."""
        if step in self.quiet:
            return
        now = time.monotonic()
        if now - self._ticked < TICK_EVERY_S and done < total:
            return
        self._ticked = now
        self._tick = ProgressTicked(
            run_id=self.spec.id,
            step=step,
            phase=phase,
            done=done,
            total=total,
            words=words,
            in_flight=in_flight or {},
            hardware=hardware,
        )
        self._announce_tick()

    async def keep_ticking(self) -> None:
        """Repeat the last tick with new CPU, memory and GPU readings until cancelled."""
        with open_gpu_reader() as look:
            for beat in itertools.count():
                if look is not None and beat % CARDS_EVERY == 0:
                    self._cards = visible(await asyncio.to_thread(look), os.environ)
                await asyncio.sleep(REPEAT_EVERY_S)
                self._announce_tick()

    def _announce_tick(self) -> None:
        if tick := self._tick:
            hardware = {**hardware_now(), **tick.hardware}
            fresh = {"at": time.time(), "hardware": hardware, "cards": self._cards}
            self._announce(tick.model_copy(update=fresh))

    def free_ballast(self) -> None:
        """Delete the reserve file, so that the last events fit on a full disk."""
        (self.folder / BALLAST).unlink(missing_ok=True)

    def close(self) -> None:
        with locks.released(self._lock), contextlib.closing(self.writer):
            self.reader.close()
            self.free_ballast()


def hardware_now() -> dict[str, float]:
    memory = psutil.virtual_memory()
    return {
        "cpu/percent": psutil.cpu_percent(),
        "memory/bytes": float(memory.total - memory.available),
        "memory/total_bytes": float(memory.total),
    }


def _set_aside(file: Path) -> None:
    with contextlib.suppress(OSError):  # no room for it: then there is none to set aside
        file.write_bytes(b"\xff" * BALLAST_BYTES)


def write_spec(folder: Path, spec: RunSpec) -> None:
    """Write run.json of a run created on this machine, and mark it as trusted."""
    text = spec.model_dump_json(indent=1)
    replace_file(folder / SPEC, text)
    remember_run(spec.id, text.encode())


async def make_open_ended_run(project: Path, spec: RunSpec) -> Path:
    """Create the folder of a run without training (arena, drafts), to which data is added later.
    Its database records that it started and finished."""
    folder = project / "runs" / spec.id
    folder.mkdir(parents=True)
    with contextlib.closing(RunWriter(folder / DATABASE, spec.id)) as writer:
        await writer.say(RunStarted(spec=spec))
        await writer.say(RunFinished(step=0, seconds=0))
    write_spec(folder, spec)
    return folder


def read_spec(folder: Path) -> RunSpec:
    """Return the spec in run.json. Raises StoreError if missing, damaged or too new."""
    try:
        data = parse_json(_bounded(folder / SPEC))
        if not isinstance(data, dict):
            raise ValueError("it is not a JSON object")
        version = data.get("schema_version", 1)
        if isinstance(version, int) and version > 1:
            raise StoreError.of(
                "store.newer",
                "This run was made by a newer version of Atelier.",
                "Update Atelier to open it; the run was not changed.",
                where=str(folder),
            )
        return RunSpec.model_validate(data)
    except (OSError, ValueError) as error:
        raise StoreError.of(
            "store.no_spec",
            f"The run's {SPEC} cannot be read: {in_one_line(error)}.",
            "Repair the run: `atelier repair RUN` restores it from the database.",
            where=str(folder),
            detail=str(error)[:4000],
        ) from error


def run_reader(folder: Path) -> contextlib.closing[RunReader]:
    """Return a context manager with a reader of the database of the run in `folder`. Raises
    StoreError if the database is damaged."""
    return contextlib.closing(RunReader(folder / DATABASE))


def opened_run(folder: Path) -> contextlib.closing["Run"]:
    """Return a context manager with a run opened outside of an engine. Raises StoreError, or
    Refused if an engine is using it."""
    return contextlib.closing(Run(folder, read_spec(folder), lambda tick: None))


def specs_of(project: Path) -> Iterator[tuple[Path, RunSpec]]:
    """Yield folder and spec of each run of a project whose run.json is readable, newest first."""
    for file in sorted(project.glob(f"runs/*/{SPEC}"), reverse=True):
        try:
            check_run_folder(file.parent)
            yield file.parent, read_spec(file.parent)
        except StoreError:
            continue


def _bounded(file: Path) -> bytes:
    """Return the bytes of a regular file, up to 64 MiB. Raises OSError or ValueError."""
    status = file.stat()
    if not stat.S_ISREG(status.st_mode):
        raise ValueError("it is not a regular file")
    if status.st_size > MOST_SPEC_BYTES:
        raise ValueError(f"it is too large ({status.st_size // 2**20} MB)")
    return file.read_bytes()


def is_locked(folder: Path) -> bool:
    """Whether an engine is using this run."""
    return locks.is_locked(folder / LOCK)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a run folder for the block. Raises Refused if another engine holds it."""
    clear_lock(folder / LOCK)
    with locks.released(_take_lock(folder / LOCK)):
        yield


def _take_lock(file: Path) -> int:
    try:
        return locks.take_lock(file, LOCK_WAIT_S)  # `is_locked` holds it for a moment
    except locks.Busy:
        raise Refused.of(
            "run.locked",
            "Another engine is using this run.",
            "Open the run in the studio or terminal that started it.",
            where=str(file),
        ) from None
