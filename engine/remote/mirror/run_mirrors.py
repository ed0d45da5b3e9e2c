"""Mirrors of one server's runs that belong to projects of this machine. Active runs are mirrored
continuously; data of ended runs is requested when it is needed."""

import asyncio
import contextlib
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel, ValidationError

from engine.client import EngineClient
from engine.evaluation.stored import SCENARIOS
from engine.protocol.base import BaseEvent
from engine.protocol.identifiers import is_run_id
from engine.protocol.problems import AtelierError, LaunchError, Problem, Refused, StoreError
from engine.protocol.records.runs import ACTIVE_STATES, RunSpec, RunSummary
from engine.remote.mirror.mirror import Mirror
from engine.remote.mirror.record import Replicated, forget_record, read_record, write_record
from engine.remote.mirror.replica import Replica
from engine.remote.started_runs import check_spec
from engine.remote.sync.download import PARTS, fetch
from engine.remote.tunnel.home import LocalMachine
from engine.runtime.closing import cancel
from engine.runtime.files import replace_file
from engine.storage.project import load_config
from engine.storage.run_folder.images import FOLDER as IMAGES
from engine.storage.run_folder.run import LOG, SPEC
from engine.training.sft.data import HELD_OUT, TRAIN
from engine.trust.store import remember_run

LINGER_S = 60.0
"""Seconds that an ended run is still mirrored after a command was sent to it."""
LOOK_S = 10.0
"""Seconds between two requests for the list of runs there."""
SHORTEST_S = 0.05
FIRST_EVENT_S = 10.0
AGAIN_S = 60.0
"""Seconds until a run that could not be copied is tried again."""
MOST_RUNS = 5000
"""Most runs that one server may list."""
MOST_SMALL_BYTES = 2**30
"""Size limit of a log, and of the scenarios and demonstrations that a run keeps."""
MOST_SPEC_BYTES = 2**26
TICK_S = 0.02
"""Seconds between two progress events of a run that are passed on."""
GONE = {"run.unknown", "sync.unknown"}
"""Problem codes for a run that was deleted on its server between two requests."""
LOST = {"engine.unreachable"}
"""Problem codes for a lost connection."""


@dataclass
class Followed:
    """Run that is mirrored continuously over one connection."""

    client: EngineClient
    replica: Replica
    task: "asyncio.Task[None]"
    mirror: Mirror = field(repr=False)


class Mirrors:
    """Mirrors of the runs on the server named `host`, with at most one writer for each replica."""

    def __init__(self, host: str, home: LocalMachine, notice: Callable[[Problem], None]) -> None:
        """`notice` receives problems of remote runs."""
        self._host, self._home, self._notice = host, home, notice
        self.runs: list[RunSummary] = []
        """All runs in the engine's latest list, without their rewards."""
        self._followed: dict[str, Followed] = {}
        self._touched: dict[str, float] = {}
        self._complete: dict[str, float] = {}
        """Ended runs that are completely copied, with the time of their last change."""
        self._failed: dict[str, float] = {}
        """Runs that could not be copied, with the time (monotonic) of the next try."""
        self._following = asyncio.Lock()
        self._news = asyncio.Event()

    @property
    def behind(self) -> int:
        """Number of events of mirrored runs that exist on the server and are not copied yet."""
        return sum(one.mirror.behind for one in self._followed.values())

    async def keep_up(self, client: EngineClient) -> None:
        """Mirror the server's runs, new ones included, until the connection is lost, which raises
        LaunchError."""
        self._failed.clear()
        while True:
            self._news.clear()
            runs = await self._listed(client)
            self.runs = [run.model_copy(update={"rewards": [], "losses": []}) for run in runs]
            self._home.changed()
            for run in runs:
                await self._try(client, run)
            await asyncio.sleep(SHORTEST_S)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), LOOK_S)

    async def _listed(self, client: EngineClient) -> list[RunSummary]:
        """Listed runs with a valid id and finite numbers; invalid ones are reported by a notice."""
        runs = await client.runs()
        good = [run for run in runs[:MOST_RUNS] if is_run_id(run.id) and _is_finite(run)]
        if len(good) < len(runs):
            self._notice(
                Problem(
                    code="host.bad_runs",
                    message=f"{self._host} lists {len(runs) - len(good)} runs that are not shown: "
                    "their ids or numbers are invalid, or there are too many runs.",
                    hint="Check which processes are running on that server.",
                )
            )
        return good

    async def _try(self, client: EngineClient, run: RunSummary) -> None:
        """Mirror one run; if it cannot be copied, the others continue. Raises LaunchError where the
        connection is lost."""
        if time.monotonic() < self._failed.get(run.id, 0.0):
            return
        try:
            await self._attend(client, run)
            self._failed.pop(run.id, None)
        except AtelierError as error:
            if error.problem.code in LOST:
                raise
            await self._stop(run.id)
            self._failed[run.id] = time.monotonic() + AGAIN_S
            if error.problem.code not in GONE:
                self._notice(error.problem)

    async def _attend(self, client: EngineClient, run: RunSummary) -> None:
        goes_on = run.state in ACTIVE_STATES or self._is_wanted(run.id)
        if not goes_on:
            await self._stop(run.id)
        if not goes_on and self._complete.get(run.id) == run.changed_at:
            return
        folder = await asyncio.to_thread(self._folder_of, run)
        if folder is None:
            return
        if goes_on:
            await self.follow(client, run.id, folder)
        else:
            await self.catch_up(client, folder)
            self._complete[run.id] = run.changed_at

    def _folder_of(self, run: RunSummary) -> Path | None:
        """Folder of the run's replica, possibly not existing yet; None without a local project."""
        name = Path(run.project_path).name
        for project in self._home.projects():
            folder = project / "runs" / run.id
            if self._is_ours(folder):
                return folder
            if self._home.folder_name(project) == name and _is_free(folder):
                return folder
        return None

    def new_folder(self, project: Path, run_id: str) -> Path:
        """Folder for the local copy of a new run of `project`; not created. Raises Refused if
        `run_id`, which the server chose, is invalid or belongs to another run."""
        folder = project / "runs" / run_id
        if not is_run_id(run_id) or not (_is_free(folder) or self._is_ours(folder)):
            raise Refused.of(
                "host.bad_run_id",
                f"{self._host} returned an invalid id for the new run: {run_id[:40]!a}.",
                "Nothing was changed here. Check the processes on that server.",
            )
        return folder

    def _is_ours(self, folder: Path) -> bool:
        known = read_record(folder)
        return known is not None and known.host == self._host

    async def follow(self, client: EngineClient, run_id: str, folder: Path) -> None:
        """Begin to mirror a run into `folder` in the background; no effect if it is mirrored
        already. Raises LaunchError if disconnected."""
        async with self._following:
            await self._follow_one(client, run_id, folder)

    async def _follow_one(self, client: EngineClient, run_id: str, folder: Path) -> None:
        known = self._followed.get(run_id)
        if known and not known.task.done():
            return
        if known:
            await self._stop_one(run_id)
            if known.client is client:
                known.task.result()
        replica = await self._replica(client, run_id, folder)
        mirror = self._mirror(client, run_id, replica)
        task = asyncio.create_task(mirror.run(), name=f"mirror {run_id}")
        task.add_done_callback(lambda _: self._news.set())
        self._followed[run_id] = Followed(client, replica, task, mirror)

    async def catch_up(self, client: EngineClient, run: Path) -> None:
        """Copy what is missing of a run, whose replica is in folder `run`: events, log and images;
        and stop mirroring it. Raises LaunchError where the connection is lost, Refused where the
        run is no longer there."""
        async with self._following:
            await self._stop_one(run.name)
            replica = await self._replica(client, run.name, run)
            try:
                await self._mirror(client, run.name, replica).catch_up()
            finally:
                await asyncio.to_thread(replica.close)
        await fetch(client, run.name, run, LOG, _unheard, MOST_SMALL_BYTES)
        await fetch(client, run.name, run, IMAGES, _unheard)

    async def release(self, run: Path) -> None:
        """Turn the mirrored run in folder `run` into a run of this machine: stop mirroring and
        delete the record of its server. Nothing is downloaded."""
        async with self._following:
            await self._stop_one(run.name)
            forget_record(run)
            self._home.started.forget(run.name)

    async def _stop(self, run_id: str) -> None:
        """Stop mirroring a run; later changes are requested when they are needed."""
        async with self._following:
            await self._stop_one(run_id)

    async def stop_all(self) -> None:
        for run_id in list(self._followed):
            await self._stop(run_id)

    async def _stop_one(self, run_id: str) -> None:
        if followed := self._followed.pop(run_id, None):
            await cancel(followed.task)
            await asyncio.to_thread(followed.replica.close)

    async def _replica(self, client: EngineClient, run_id: str, folder: Path) -> Replica:
        await self._make_folder(client, run_id, folder)
        return await asyncio.to_thread(Replica, folder, run_id)

    def _mirror(self, client: EngineClient, run_id: str, replica: Replica) -> Mirror:
        ticked = 0.0

        def announce(tick: BaseEvent | None) -> None:
            nonlocal ticked
            if tick is not None:
                if time.monotonic() - ticked < TICK_S:
                    return
                ticked = time.monotonic()
                tick = tick.model_copy(update={"run_id": run_id, "seq": None})
                if not _is_finite(tick):
                    return
            self._home.announce(run_id, tick)

        return Mirror(client, run_id, replica, announce)

    async def _make_folder(self, client: EngineClient, run_id: str, folder: Path) -> None:
        """Create the files of a run folder besides its database. The record is written first, so
        that the folder is never taken for a run of this machine. The spec is written last, after it
        was checked against the settings that the run was started with here."""
        if (folder / SPEC).exists():
            return
        if not (_is_free(folder) or self._is_ours(folder)):
            raise Refused.of("host.taken_id", f"{self._host} lists two runs with the id {run_id}.")
        folder.mkdir(parents=True, exist_ok=True)
        record = Replicated(host=self._host, folder=self._home.folder_name(folder.parents[1]))
        write_record(folder, record)
        scratch = folder / PARTS / "spec"
        try:
            for kept in (SCENARIOS, TRAIN, HELD_OUT):
                await fetch(client, run_id, folder, kept, _unheard, MOST_SMALL_BYTES)
            scratch.mkdir(parents=True, exist_ok=True)
            found = await fetch(client, run_id, scratch, SPEC, _unheard, MOST_SPEC_BYTES)
            spec = await asyncio.to_thread(self._checked_spec, folder, found)
            text = spec.model_dump_json(indent=1)
            replace_file(folder / SPEC, text)
            remember_run(run_id, text.encode())
        except (Refused, StoreError):
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
            raise
        await asyncio.to_thread(shutil.rmtree, scratch, ignore_errors=True)

    def _checked_spec(self, folder: Path, found: list[Path]) -> RunSpec:
        """Run spec from the server, checked against the settings known here. Raises Refused."""
        run_id, project = folder.name, folder.parents[1]
        try:
            spec = RunSpec.model_validate_json(found[0].read_bytes() if found else b"")
        except ValidationError as error:
            raise Refused.of(
                "host.bad_spec",
                f"The settings of run {run_id} on {self._host} cannot be read.",
                "Update Atelier on both machines to the same version.",
                detail=str(error)[:2000],
            ) from error
        known = self._home.started.find(run_id, self._host)
        check_spec(spec, run_id, known.config if known else load_config(project), self._host)
        return spec

    def _is_wanted(self, run_id: str) -> bool:
        return time.monotonic() - self._touched.get(run_id, -LINGER_S) < LINGER_S

    async def until_here(self, run_id: str, seq: int) -> None:
        """Wait until event `seq` of the run is stored in its local copy; returns without an error
        after `FIRST_EVENT_S` seconds, since the event then only arrives later. Raises LaunchError
        if the run is no longer mirrored because the connection was lost."""
        try:
            async with asyncio.timeout(FIRST_EVENT_S):
                while followed := self._followed.get(run_id):
                    if followed.replica.seq >= seq:
                        return
                    await asyncio.sleep(0.02)
        except TimeoutError:
            return
        raise LaunchError.of(
            "host.away",
            f"{self._host} disconnected right after it carried out your request.",
            "The result appears here after the server is connected again.",
        )

    def touch(self, run_id: str) -> None:
        """Mirror this run without the usual delay for the next `LINGER_S` seconds, because a
        command for it was sent to the server."""
        self._touched[run_id] = time.monotonic()
        self._news.set()


def _is_finite(value: BaseModel) -> bool:
    """Whether all numbers of a model are finite; others cannot be encoded as JSON."""
    try:
        type(value).model_validate_json(value.model_dump_json())
    except ValidationError:
        return False
    return True


def _is_free(folder: Path) -> bool:
    """Whether a folder is missing or empty, so that no data can be overwritten."""
    return not folder.is_symlink() and not (folder.exists() and any(folder.iterdir()))


def _unheard(done: int, total: int) -> None:
    """Ignore the progress of a small download."""
