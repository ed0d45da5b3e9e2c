"""Upload of one run to one experiment tracker: stored events after a cursor are sent to a tracker
process.

A service that is down, hangs or crashes does not affect the run: the process is ended, and a new
one continues later from the last confirmed event. Items that a service never accepts are counted
and skipped. After the end of a run there is a limited time for the rest; what is missing then is
sent on request. A run that resumes while its end is being sent is sent again.
"""

import asyncio
import contextlib
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.environments import installed_python
from engine.integrations.trackers.cursor import (
    Cursor,
    cursor_for,
    hold_tracker,
    target_of,
    write_cursor,
)
from engine.integrations.trackers.metrics import (
    DATA_KINDS,
    METRIC_KINDS,
    STATES,
    TRACE_KINDS,
    Item,
    StepFilter,
    row_of,
    settings_of,
)
from engine.integrations.trackers.traces import TraceContext
from engine.protocol.base import Section
from engine.protocol.config.tracking import (
    ENVIRONMENTS,
    TRACKERS,
    TrackerName,
    TrackerState,
    TrackerView,
)
from engine.protocol.events.run import GroupScored
from engine.protocol.problems import AtelierError, Problem, Refused
from engine.protocol.records.runs import RunSpec
from engine.runtime.child import Child
from engine.runtime.paths import ROOT
from engine.storage.run_db.reader import RunReader
from engine.storage.run_folder.run import DATABASE, run_reader
from engine.trust.addresses import tracker_key

LOGS = "logs"
ROWS, GROUPS = 50, 1
"""Maximum number of events, and of groups with traces, per request."""
LOOK_S = 1.0
"""Seconds between checks for new events."""
OPEN_S, ANSWER_S = 180.0, 60.0
"""Timeouts of the first and of later requests; the first includes a slow start."""
ENDED_S = 60.0
"""Timeout of all requests after the run has ended."""
BACK_OFF_S = (1.0, 2.0, 5.0, 15.0, 30.0, 60.0)
FLUSH_S = 20.0
"""Seconds without progress after which sending stops once the run has ended."""
TRACES = ("otel", "langfuse")


@dataclass(frozen=True)
class Source:
    """The run whose events are sent."""

    folder: Path
    spec: RunSpec
    living: Callable[[], bool]
    """Whether the run is active."""
    say: Callable[[str, str], Awaitable[None]]
    """Writes (level, text) to the log of the run."""


@dataclass
class Feed:
    """Upload of one run to one tracker: await `run`, and call `hurry` to send at once."""

    source: Source
    name: TrackerName
    settings: Section
    keys: Mapping[str, str]
    """API keys by tracker."""
    pids: set[int]
    """PIDs of tracker processes, which are not killed with the processes of a run."""
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    leaving: bool = False

    def __post_init__(self) -> None:
        self._state: TrackerState = "opening"
        self._problem: Problem | None = None
        self._logged_code = ""
        """Code of the last logged problem; empty if resolved."""
        self._failures = 0
        self._moved = time.monotonic()
        self._once = StepFilter()
        self._reader = RunReader(self.source.folder / DATABASE)
        target = target_of(self.settings.model_dump(mode="json"))
        self._cursor = cursor_for(self.source.folder, self.name, target)
        self._traced = self.name in TRACES
        self._kinds = TRACE_KINDS if self._traced else METRIC_KINDS

    async def run(self) -> None:
        """Send events until the engine stops, or the run has ended and all are sent or none could
        be sent for `FLUSH_S` seconds."""
        try:
            with hold_tracker(self.source.folder, self.name):
                await self._send_all()
        except Refused as error:
            await self.source.say("warning", str(error))
        finally:
            self._reader.close()

    async def _send_all(self) -> None:
        try:
            while not self._over(all_sent := await self._attempt()):
                if not all_sent:
                    await self._rest(BACK_OFF_S[min(self._failures, len(BACK_OFF_S) - 1)])
                    self._failures += 1
        finally:
            self._cursor.problem = self._problem
            with contextlib.suppress(OSError):  # a full disk: it is sent again from before
                self._keep()

    def hurry(self, leaving: bool = False) -> None:
        """Send now instead of after the usual pause: the run has ended, a key was added, or
        (`leaving`) the engine is stopping."""
        self.leaving |= leaving
        self._failures, self._moved = 0, time.monotonic()
        self.woken.set()

    def view(self) -> TrackerView:
        """Return the state of the upload. Blocks briefly to count unsent events."""
        behind = count_unsent(self.source.folder, self.name, self._cursor.seq)
        state = "behind" if self._state == "in_step" and behind else self._state
        return view_of(self.name, state, behind, self._problem, self._cursor)

    async def _attempt(self) -> bool:
        """Run one process until everything is sent. Returns False if a retry is needed."""
        try:
            python = await asyncio.to_thread(installed_python, ENVIRONMENTS[self.name])
            if python is None:
                await self._fail("missing", missing(self.name))
                return False
            await self._serve(python)
        except TimeoutError:
            words = f"{TRACKERS[self.name]} does not respond."
            hint = "Unsent data is uploaded when the service responds again."
            problem = Problem(code="track.silent", message=words, hint=hint)
            await self._fail("failing", problem)
            return False
        except AtelierError as error:
            await self._fail("failing", titled(self.name, error.problem))
            return False
        except Exception as error:  # noqa: BLE001 - no tracker stops anything: it is said, and tried again
            await self._fail("failing", unforeseen(self.name, error))
            return False
        return True

    async def _serve(self, python: Path) -> None:
        unchecked_key = self.keys.get(self.name, "")
        key = await asyncio.to_thread(tracker_key, self.name, self.settings, unchecked_key)
        argv = [str(python), "-m", "engine.integrations.trackers.worker", self.name]
        log = self.source.folder / LOGS / f"track-{self.name}.log"
        log.parent.mkdir(exist_ok=True)
        child = await Child.spawn(f"track-{self.name}", argv, cwd=ROOT, log=log)
        self.pids.add(child.pid)
        try:
            await self._open(child, key)
            await self._follow(child)
            state = await asyncio.to_thread(self._last_state)
            await self._ask(child, "close", state=state)
        finally:
            await asyncio.shield(child.kill())
            self.pids.discard(child.pid)

    async def _open(self, child: Child, key: str) -> None:
        spec, folder = self.source.spec, self.source.folder
        about = {
            "id": spec.id,
            "name": spec.name,
            "kind": spec.kind,
            "project": spec.project,
            "started_at": spec.started_at,
            "folder": str(folder),
            "version": spec.versions.get("atelier", ""),
            "settings": settings_of(spec),
        }
        settings = self.settings.model_dump(mode="json")
        answer = await self._ask(child, "open", settings=settings, key=key, run=about)
        if answer["seq"] is not None:
            self._cursor.seq = min(answer["seq"], await asyncio.to_thread(self._reader.last_seq))
        await asyncio.to_thread(self._recall)

    async def _follow(self, child: Child) -> None:
        """Send events until the run has ended and all are sent, or the engine is stopping."""
        while True:
            living = self.source.living() and not self.leaving
            seq, items = await asyncio.to_thread(self._next)
            lost = await self._send(child, items)
            if items:
                await self._well("behind")
            if seq > self._cursor.seq:
                self._cursor.seq, self._moved = seq, time.monotonic()
                await self._count(lost)
                await asyncio.to_thread(self._keep)
                continue
            await self._well("in_step")
            if not living:
                return
            if not child.alive:
                await child.ask("open")  # says how it died
            await self._rest(LOOK_S)

    async def _send(self, child: Child, items: list[Item]) -> list[dict[str, Any]]:
        """Send items (traces one by one, since each may be slow) and return the answers."""
        lots = [[one] for one in items] if self._traced else [items] if items else []
        return [await self._ask(child, "send", items=lot) for lot in lots]

    async def _count(self, answers: list[dict[str, Any]]) -> None:
        """Count rejected items; the first one is logged."""
        for answer in (one for one in answers if one["refused"]):
            if not self._cursor.refused:
                words = f"{TRACKERS[self.name]} {answer['words']} The rest is uploaded."
                await self.source.say("warning", f"{words} The run continues.")
            self._cursor.refused += answer["refused"]
            self._cursor.refusal = answer["words"]

    def _next(self) -> tuple[int, list[Item]]:
        """Return the next items to send, and the `seq` of their last event."""
        most = GROUPS if self._traced else ROWS
        events = self._reader.events_after(self._cursor.seq, self._kinds, most)
        items: list[Item] = []
        for event in events:
            if isinstance(event, GroupScored):
                items += self._traces(event)
            elif self._once.new(event) and (row := row_of(event)):
                items.append(row)
        return (events[-1].seq or 0) if events else self._cursor.seq, items

    def _traces(self, event: GroupScored) -> list[Item]:
        group = event.group
        found = self._reader.siblings(group.split, group.step, group.group)
        content = bool(getattr(self.settings, "content", False))
        teller = TraceContext(self.source.spec, content, self.name == "langfuse")
        items = []
        for one in found.trajectories:
            verdicts = [v for v in found.verdicts if v.trajectory_id == one.id]
            spans = teller.spans(one, verdicts, event.at)
            items.append({"seq": event.seq, "at": event.at, "spans": spans})
        return items

    def _recall(self) -> None:
        """Fill the filter of repeated steps with those that were sent before the cursor."""
        self._once, after = StepFilter(), 0
        while not self._traced and after < self._cursor.seq:
            events = self._reader.events_after(after, ("step.finished",), ROWS)
            for event in events:
                if (event.seq or 0) <= self._cursor.seq:
                    self._once.new(event)
            after = (events[-1].seq or 0) if events else self._cursor.seq

    def _last_state(self) -> str:
        events = self._reader.events_of(*STATES)
        row = row_of(events[-1]) if events else None
        return row["state"] if row else "running"

    def _keep(self) -> None:
        write_cursor(self.source.folder, self.name, self._cursor)

    async def _ask(self, child: Child, op: str, **fields: Any) -> dict[str, Any]:
        limit = OPEN_S if op == "open" else ANSWER_S
        async with asyncio.timeout(limit if self.source.living() else ENDED_S):
            answer = await child.ask(op, **fields)
        self._cursor.url = answer.get("url") or self._cursor.url
        return answer

    async def _rest(self, seconds: float) -> None:
        """Sleep, or return at once after `hurry`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.woken.wait()
        self.woken.clear()

    def _over(self, all_sent: bool) -> bool:
        """Whether to stop: the engine is stopping, or an ended run is sent or makes no progress."""
        if self.leaving or self.source.living():
            return self.leaving
        return all_sent or time.monotonic() - self._moved > FLUSH_S

    async def _fail(self, state: TrackerState, problem: Problem) -> None:
        self._state, self._problem = state, problem
        if self._logged_code != problem.code:
            self._logged_code = problem.code
            await self.source.say("warning", f"{problem} The run continues.")

    async def _well(self, state: TrackerState) -> None:
        """Set the state after a successful send, or when there is nothing to send."""
        self._failures, self._problem, self._state = 0, None, state
        if self._logged_code:
            self._logged_code = ""
            await self.source.say("info", f"{TRACKERS[self.name]} receives data again.")


def view_of(
    name: TrackerName, state: TrackerState, behind: int, problem: Problem | None, cursor: Cursor
) -> TrackerView:
    return TrackerView(
        name=name,
        state=state,
        behind=behind,
        problem=problem,
        url=cursor.url,
        refused=cursor.refused,
        refusal=cursor.refusal,
    )


def count_unsent(run: Path, name: TrackerName, seq: int) -> int:
    """Number of steps, validations or (for traces) groups of a run with events after `seq`."""
    kinds = TRACE_KINDS if name in TRACES else DATA_KINDS
    with run_reader(run) as reader:
        return reader.count_after(seq, kinds)


def is_unfinished(run: Path) -> bool:
    """Whether the run in a folder has started and has no end yet."""
    with run_reader(run) as reader:
        return bool(events := reader.events_of(*STATES)) and events[-1].kind == "run.started"


def missing(name: TrackerName) -> Problem:
    environment = ENVIRONMENTS[name]
    return Problem(
        code="track.missing",
        message=f"Nothing is sent to {TRACKERS[name]}: the environment {environment} is not "
        "installed.",
        hint=f"Install it under Settings → Engines or with `atelier environments install "
        f"{environment}`; unsent data is then uploaded.",
    )


def titled(name: TrackerName, problem: Problem) -> Problem:
    """Return a problem of a tracker process with the tracker's name before its message."""
    if not problem.code.startswith("track.") or problem.code.endswith(".died"):
        return problem
    return problem.model_copy(update={"message": f"{TRACKERS[name]} {problem.message}"})


def unforeseen(name: TrackerName, error: Exception) -> Problem:
    return Problem(
        code="track.bug",
        message=f"The upload to {TRACKERS[name]} failed: {type(error).__name__}: {error}.",
        hint="Retrying. Please report this error with its details.",
        detail="".join(traceback.format_exception(error))[-8000:],
    )
