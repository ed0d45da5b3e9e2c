"""One server: its tunnel, the runs that are mirrored from it, what goes up before a run begins, and
the errands that come home from it.
"""

import asyncio
import contextlib
import hashlib
import string
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.client import EngineClient
from engine.hosts.models import ensure_model
from engine.hosts.record import Replicated, read_record, write_record
from engine.hosts.tunnel import Connect, Tunnel
from engine.launch.source import build
from engine.project import load_config
from engine.protocol.errands import Errand, ErrandDone, Lease
from engine.protocol.event import BaseEvent
from engine.protocol.hosts import HostSpec, HostTick, HostView, Question
from engine.protocol.problems import AtelierError, LaunchError, Refused
from engine.protocol.records import LIVING, RunSummary
from engine.protocol.requests import StartEvaluation, StartRun
from engine.protocol.sync import SyncFolder
from engine.replica.mirror import Mirror
from engine.replica.replica import Replica
from engine.run import LOG, SPEC
from engine.sync.fetch import fetch
from engine.sync.manifest import project_manifest
from engine.sync.push import Progress, push

Announce = Callable[[str, BaseEvent | None], None]
RunErrand = Callable[[str, Errand], Awaitable[Any]]

FIT = set(string.ascii_letters + string.digits + "-_")
"""For a folder's name on any machine."""
ERRAND_WAIT_S = 15.0
LINGER_S = 60.0
"""A run that has ended is followed so long after it was told something."""
LOOK_S = 10.0
"""From one look at the list of runs there to the next."""
BEGUN_S = 10.0


@dataclass
class Asked:
    """A question that waits for a person."""

    question: Question
    answer: "asyncio.Future[str | None]"


@dataclass
class Home:
    """What every host needs to know of this side."""

    id: str
    name: str
    projects: Callable[[], list[Path]]
    announce: Announce
    keys: Mapping[str, str]
    """Of judges, by provider."""
    run_errand: RunErrand
    """(host, errand): its answer, by a judge's process of ours."""
    changed: Callable[[], None]


@dataclass
class Followed:
    folder: Path
    replica: Replica
    task: "asyncio.Task[None]"
    mirror: Mirror = field(repr=False)


class Host:
    """Make it, `connect` it, `close` it. Everything of a run that was heard stays here."""

    def __init__(self, spec: HostSpec, home: Home, connect: Connect) -> None:
        self.spec, self._home = spec, home
        lease = Lease(home=home.id, name=home.name)
        self.tunnel = Tunnel(spec, lease, self, connect, home.changed, self._serve)
        self._questions: dict[str, Asked] = {}
        self._followed: dict[str, Followed] = {}
        self._away: list[RunSummary] = []
        self._touched: dict[str, float] = {}
        self._news = asyncio.Event()
        self._syncing, self._following = asyncio.Lock(), asyncio.Lock()
        self.moving = asyncio.Lock()
        """Held while files of runs change machines: one thing after the other."""

    # What a person sees and says

    def view(self) -> HostView:
        tunnel = self.tunnel
        asked = [one.question for one in self._questions.values()]
        return HostView(
            spec=self.spec,
            state="asking" if asked else tunnel.state,
            problem=tunnel.problem,
            job=tunnel.job,
            questions=asked,
            tick=tunnel.tick,
            report=tunnel.report,
            info=tunnel.info if tunnel.state == "connected" else None,
            latency_s=tunnel.latency_s if tunnel.state == "connected" else None,
            failures=tunnel.failures,
            retry_at=tunnel.retry_at,
            outdated=bool(tunnel.reached and tunnel.reached.build != build()),
            behind=sum(one.mirror.behind for one in self._followed.values()),
            runs=self._away,
        )

    async def ask(self, question: Question) -> str | None:
        """The connection asks a person; answered by `answer`."""
        asked = Asked(question, asyncio.get_running_loop().create_future())
        self._questions[question.id] = asked
        self._home.changed()
        try:
            return await asked.answer
        finally:
            del self._questions[question.id]
            self._home.changed()

    @property
    def connected(self) -> bool:
        return self.tunnel.state == "connected"

    def answer(self, question: str, value: str | None) -> None:
        """Raises Refused where nobody asks that any more."""
        asked = self._questions.get(question)
        if asked is None or asked.answer.done():
            raise Refused.of("host.no_question", "Nobody waits for this answer any more.")
        asked.answer.set_result(value)

    async def close(self) -> None:
        await self.tunnel.disconnect()
        await self._stop_following(list(self._followed))

    # While it is connected

    async def _serve(self, client: EngineClient) -> None:
        """Until the way is lost (LaunchError)."""
        tasks = [
            asyncio.create_task(self._follow_all(client), name=f"runs of {self.spec.name}"),
            asyncio.create_task(self._run_errands(client), name=f"errands of {self.spec.name}"),
        ]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._stop_following(list(self._followed))

    async def _follow_all(self, client: EngineClient) -> None:
        """Every run of ours there that goes on, or has more to tell than is here."""
        seen: dict[str, float] = {}
        while True:
            self._news.clear()
            self._away = await client.runs()
            self._home.changed()
            for run in self._away:
                folder = await asyncio.to_thread(self._folder_of, run)
                if folder is None:
                    continue
                changed = seen.get(run.id) != run.changed_at
                if run.state in LIVING or changed or self._is_wanted(run.id):
                    await self._follow(client, run.id, folder)
                    seen[run.id] = run.changed_at
            await self._let_go()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), LOOK_S)

    def _folder_of(self, run: RunSummary) -> Path | None:
        """Where its replica is, or shall be; None for a run of nobody here."""
        name = Path(run.project_path).name
        for project in self._home.projects():
            folder = project / "runs" / run.id
            known = read_record(folder)
            if known and known.host == self.spec.name:
                return folder
            if self.folder_name(project) == name and not (folder / SPEC).exists():
                return folder
        return None

    async def _follow(self, client: EngineClient, run_id: str, folder: Path) -> None:
        """Raises LaunchError where the way is lost."""
        async with self._following:
            await self._follow_one(client, run_id, folder)

    async def _follow_one(self, client: EngineClient, run_id: str, folder: Path) -> None:
        known = self._followed.get(run_id)
        if known and not known.task.done():
            return
        if known:
            known.task.result()
            known.replica.close()
        await self._make_folder(client, run_id, folder)
        replica = await asyncio.to_thread(Replica, folder, run_id)
        mirror = Mirror(client, run_id, replica, lambda tick: self._home.announce(run_id, tick))
        task = asyncio.create_task(mirror.run(), name=f"mirror {run_id}")
        task.add_done_callback(lambda _: self._news.set())
        self._followed[run_id] = Followed(folder, replica, task, mirror)

    async def catch_up(self, run: Path) -> None:
        """Every event of it is here when this returns. Raises LaunchError where the way is lost."""
        client = self.tunnel.client
        self._touched[run.name] = time.monotonic()
        await self._follow(client, run.name, run)
        followed = self._followed[run.name]
        while (await client.changes(run.name, followed.replica.seq)).page:
            if followed.task.done() and not followed.task.cancelled():
                followed.task.result()
            await asyncio.sleep(0.05)

    async def stop_following(self, run_id: str) -> None:
        """Nothing more of it comes here."""
        await self._stop_following([run_id] if run_id in self._followed else [])

    async def _make_folder(self, client: EngineClient, run_id: str, folder: Path) -> None:
        """What a run folder has besides its database; the record first, so that nobody takes it for
        a run of this machine."""
        if not (folder / SPEC).exists():
            folder.mkdir(parents=True, exist_ok=True)
            record = Replicated(host=self.spec.name, folder=self.folder_name(folder.parents[1]))
            write_record(folder, record)
            await fetch(client, run_id, folder, "scenarios.jsonl", _unheard)
            await fetch(client, run_id, folder, SPEC, _unheard)

    async def _let_go(self) -> None:
        """Of runs that have ended and are all here."""
        ended = {run.id for run in self._away if run.state not in LIVING}
        caught_up = [
            run_id
            for run_id, one in self._followed.items()
            if run_id in ended and one.mirror.known and not one.mirror.behind
            if not self._is_wanted(run_id)
        ]
        for run_id in caught_up:
            with contextlib.suppress(Refused):  # it has gone from there meanwhile
                folder = self._followed[run_id].folder
                await fetch(self.tunnel.client, run_id, folder, LOG, _unheard)
        await self._stop_following(caught_up)

    def _is_wanted(self, run_id: str) -> bool:
        return time.monotonic() - self._touched.get(run_id, -LINGER_S) < LINGER_S

    async def _stop_following(self, run_ids: list[str]) -> None:
        for run_id in run_ids:
            followed = self._followed.pop(run_id)
            followed.task.cancel()
            await asyncio.gather(followed.task, return_exceptions=True)
            await asyncio.to_thread(followed.replica.close)

    async def _run_errands(self, client: EngineClient) -> None:
        """Each in a task of its own; answers that nobody waits for any more are dropped."""
        running: set[asyncio.Task[None]] = set()
        try:
            while True:
                for errand in await client.errands(ERRAND_WAIT_S):
                    task = asyncio.create_task(self._run_errand(client, errand))
                    running.add(task)
                    task.add_done_callback(running.discard)
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _run_errand(self, client: EngineClient, errand: Errand) -> None:
        try:
            answer = ErrandDone(answer=await self._home.run_errand(self.spec.name, errand))
        except AtelierError as error:
            answer = ErrandDone(problem=error.problem)
        with contextlib.suppress(AtelierError):  # handed out again to whoever comes next
            await client.errand_done(errand.id, answer)

    # Runs that begin there

    async def start(self, project: Path, request: StartRun | StartEvaluation) -> Path:
        """Bring the project there as it is now, and begin; the replica's folder, where the first
        events have come. Raises Refused, LaunchError, ConfigError."""
        client = self.tunnel.client
        key = request.key or uuid.uuid4().hex
        async with self._syncing:
            there = await self._prepare(client, project, request)
            if isinstance(request, StartEvaluation):
                request = _inside(request, project)
            ours = {"project": there, "host": "", "key": key, "lend_keys": False}
            keys = {"lent": dict(self._home.keys)} if request.lend_keys else {"keys_at_home": True}
            asked = request.model_copy(update=ours | keys)
            if isinstance(asked, StartRun):
                run = await client.start_run(asked)
            else:
                run = await client.start_evaluation(asked)
        folder = project / "runs" / run.id
        await self._follow(client, run.id, folder)
        self._news.set()
        await self.until_here(run.id, 1)
        return folder

    async def _prepare(
        self, client: EngineClient, project: Path, request: StartRun | StartEvaluation
    ) -> str:
        """Model and project are there, the same as here; the project's folder there."""
        config = await asyncio.to_thread(load_config, project, request.overrides)
        wanted = await asyncio.to_thread(project_manifest, project)
        asked = SyncFolder(folder=self.folder_name(project), manifest=wanted)
        try:
            shell, name = self.tunnel.shell, config.model.name
            await ensure_model(client, shell, name, self._progress(name))
            return (await push(client, project, asked, self._progress(project.name))).path
        finally:
            self.tunnel.tick = None
            self._home.changed()

    def _progress(self, words: str) -> Progress:
        def progress(done: int, total: int) -> None:
            self.tunnel.tick = HostTick(stage="syncing", words=words, done=done, total=total)
            self._home.changed()

        return progress

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
            f"{self.spec.name} was lost just now; what you asked for was done there.",
            "It shows here as soon as the server is back.",
        )

    def touch(self, run_id: str) -> None:
        """Something was asked of a run there: what becomes of it is wanted here at once."""
        self._touched[run_id] = time.monotonic()
        self._news.set()

    def folder_name(self, project: Path) -> str:
        """Of a project in the workspace there: the same for as long as it lies here."""
        mark = hashlib.sha256(f"{self._home.id} {project}".encode()).hexdigest()[:8]
        kept = "".join(c if c in FIT else "-" for c in project.name)
        return f"{kept.strip('-_') or 'project'}-{mark}"


def _inside(request: StartEvaluation, project: Path) -> StartEvaluation:
    """Its scenarios by a name that means the same there. Raises Refused for another file."""
    if request.scenarios in ("train", "validation"):
        return request
    file = (project / Path(request.scenarios).expanduser()).resolve()
    if not file.is_relative_to(project):
        raise Refused.of(
            "host.not_in_project",
            f"{file.name} lies outside of the project, and only the project goes to the server.",
            "Copy the file into the project.",
            where=str(file),
        )
    return request.model_copy(update={"scenarios": file.relative_to(project).as_posix()})


def _unheard(done: int, total: int) -> None:
    """Progress of something small."""
