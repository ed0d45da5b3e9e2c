"""The runs of one server that are ours: those that go on are mirrored as they do, of the others the
rest is asked for.
"""

import asyncio
import contextlib
import time
from dataclasses import dataclass, field
from pathlib import Path

from engine.client import EngineClient
from engine.evaluation.stored import SCENARIOS
from engine.hosts.home import Home
from engine.hosts.record import Replicated, forget_record, read_record, write_record
from engine.protocol.problems import LaunchError, Refused
from engine.protocol.records import LIVING, RunSummary
from engine.replica.mirror import Mirror
from engine.replica.replica import Replica
from engine.run import LOG, SPEC
from engine.supervised.data import HELD_OUT, TRAIN
from engine.sync.fetch import fetch

LINGER_S = 60.0
"""A run that has ended is followed so long after it was told something."""
LOOK_S = 10.0
"""From one look at the list of runs there to the next."""
BEGUN_S = 10.0
GONE = {"run.unknown", "sync.unknown"}
"""What is said of a run that has left its server between two looks."""


@dataclass
class Followed:
    """A run that is mirrored as it goes on, over one connection."""

    client: EngineClient
    replica: Replica
    task: "asyncio.Task[None]"
    mirror: Mirror = field(repr=False)


class Mirrors:
    """Of the server `host`, by its name. At most one writer for each replica."""

    def __init__(self, host: str, home: Home) -> None:
        self._host, self._home = host, home
        self.runs: list[RunSummary] = []
        """All that its engine knows of, as it last said; without their rewards."""
        self._followed: dict[str, Followed] = {}
        self._touched: dict[str, float] = {}
        self._complete: dict[str, float] = {}
        """Runs that have ended and are all here, by when they changed last."""
        self._following = asyncio.Lock()
        self._news = asyncio.Event()

    @property
    def behind(self) -> int:
        """Events that are known of there and not here yet."""
        return sum(one.mirror.behind for one in self._followed.values())

    async def keep_up(self, client: EngineClient) -> None:
        """For as long as the connection stands. Raises LaunchError where it is lost."""
        while True:
            self._news.clear()
            runs = await client.runs()
            self.runs = [run.model_copy(update={"rewards": []}) for run in runs]
            self._home.changed()
            for run in runs:
                try:
                    await self._attend(client, run)
                except Refused as error:
                    if error.problem.code not in GONE:
                        raise
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), LOOK_S)

    async def _attend(self, client: EngineClient, run: RunSummary) -> None:
        goes_on = run.state in LIVING or self._is_wanted(run.id)
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
        """Where its replica is, or shall be; None for a run of nobody here."""
        name = Path(run.project_path).name
        for project in self._home.projects():
            folder = project / "runs" / run.id
            known = read_record(folder)
            if known and known.host == self._host:
                return folder
            if self._home.folder_name(project) == name and not (folder / SPEC).exists():
                return folder
        return None

    async def follow(self, client: EngineClient, run_id: str, folder: Path) -> None:
        """Raises LaunchError where the way is lost."""
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
        """Every event of it is here when this returns, and its log; it is followed no more. Raises
        LaunchError where the way is lost, Refused where it has gone from there."""
        async with self._following:
            await self._stop_one(run.name)
            replica = await self._replica(client, run.name, run)
            try:
                await self._mirror(client, run.name, replica).catch_up()
            finally:
                await asyncio.to_thread(replica.close)
        await fetch(client, run.name, run, LOG, _unheard)

    async def release(self, run: Path) -> None:
        """It is this machine's from now on."""
        async with self._following:
            await self._stop_one(run.name)
            forget_record(run)

    async def _stop(self, run_id: str) -> None:
        """What comes of it later is asked for."""
        async with self._following:
            await self._stop_one(run_id)

    async def stop_all(self) -> None:
        for run_id in list(self._followed):
            await self._stop(run_id)

    async def _stop_one(self, run_id: str) -> None:
        if followed := self._followed.pop(run_id, None):
            followed.task.cancel()
            await asyncio.gather(followed.task, return_exceptions=True)
            await asyncio.to_thread(followed.replica.close)

    async def _replica(self, client: EngineClient, run_id: str, folder: Path) -> Replica:
        await self._make_folder(client, run_id, folder)
        return await asyncio.to_thread(Replica, folder, run_id)

    def _mirror(self, client: EngineClient, run_id: str, replica: Replica) -> Mirror:
        return Mirror(client, run_id, replica, lambda tick: self._home.announce(run_id, tick))

    async def _make_folder(self, client: EngineClient, run_id: str, folder: Path) -> None:
        """What a run folder has besides its database; the record first, so that nobody takes it for
        a run of this machine."""
        if not (folder / SPEC).exists():
            folder.mkdir(parents=True, exist_ok=True)
            record = Replicated(host=self._host, folder=self._home.folder_name(folder.parents[1]))
            write_record(folder, record)
            for kept in (SCENARIOS, TRAIN, HELD_OUT, SPEC):
                await fetch(client, run_id, folder, kept, _unheard)

    def _is_wanted(self, run_id: str) -> bool:
        return time.monotonic() - self._touched.get(run_id, -LINGER_S) < LINGER_S

    async def until_here(self, run_id: str, seq: int) -> None:
        """Until the replica has that event, or the way there is lost."""
        try:
            async with asyncio.timeout(BEGUN_S):
                while followed := self._followed.get(run_id):
                    if followed.replica.seq >= seq:
                        return
                    await asyncio.sleep(0.02)
        except TimeoutError:
            return
        raise LaunchError.of(
            "host.away",
            f"{self._host} was lost just now; what you asked for was done there.",
            "It shows here as soon as the server is back.",
        )

    def touch(self, run_id: str) -> None:
        """Something was asked of a run there: what becomes of it is wanted here at once."""
        self._touched[run_id] = time.monotonic()
        self._news.set()


def _unheard(done: int, total: int) -> None:
    """Progress of something small."""
