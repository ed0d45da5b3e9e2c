"""Remote server: its tunnel, mirrored runs, uploads before a run, and requests to this machine."""

import asyncio
import contextlib
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

from engine.client import EngineClient
from engine.launcher.source_files import build
from engine.protocol.config.project import ProjectConfig
from engine.protocol.problems import AtelierError, ConfigError, Problem, Refused
from engine.protocol.records.runs import ACTIVE_STATES
from engine.protocol.requests.home import HomeRequest, HomeResponse, Lease
from engine.protocol.requests.remote import HostSpec, HostTick, HostView, Question
from engine.protocol.requests.runs import StartEvaluation, StartRun
from engine.protocol.requests.sync import SyncFolder
from engine.remote.install.models import ensure_model
from engine.remote.mirror.run_mirrors import Mirrors
from engine.remote.started_runs import StartedRun, provider_models, providers_of, settings_of
from engine.remote.sync.manifest import project_manifest
from engine.remote.sync.upload import Progress, push
from engine.remote.tunnel.home import LocalMachine
from engine.remote.tunnel.tunnel import Connect, Tunnel
from engine.runtime.closing import cancel
from engine.storage.project import load_config
from engine.trust.addresses import check_addresses, confirmed_addresses

REQUEST_WAIT_S = 15.0
MOST_HOME_REQUESTS = 256
"""Home requests of one server that are executed at the same time."""
IDLE_S = 1.0
"""Minimum pause in seconds after an empty list of home requests that arrived immediately."""
MOST_NOTICES = 20
REACH_S, WAIT_S = 60.0, 0.1
"""Maximum wait in seconds for the first connection, and the pause between two looks at it."""


@dataclass
class PendingQuestion:
    """A question that waits for a person."""

    question: Question
    answer: "asyncio.Future[str | None]"


class Host:
    """Connection to one remote server and its runs: create it, `connect` it, `close` it. All data
    received from its runs stays on this machine."""

    def __init__(self, spec: HostSpec, home: LocalMachine, connect: Connect) -> None:
        self.spec, self.home = spec, home
        lease = Lease(home=home.id, name=home.name)
        self.tunnel = Tunnel(spec, lease, self, connect, home.changed, self._serve)
        self._questions: dict[str, PendingQuestion] = {}
        self.mirrors = Mirrors(spec.name, home, self.notice)
        self._syncing = asyncio.Lock()
        self._notices: dict[str, Problem] = {}
        self._noticed: Problem | None = None
        self.moving = asyncio.Lock()
        """Lock for moving files of runs between machines, one move at a time."""

    # What a person sees and says

    def view(self) -> HostView:
        tunnel = self.tunnel
        questions = [one.question for one in self._questions.values()]
        return HostView(
            spec=self.spec,
            state="asking" if questions else tunnel.state,
            problem=tunnel.problem or self._noticed,
            notices=list(self._notices.values()),
            job=tunnel.job,
            questions=questions,
            tick=tunnel.tick,
            report=tunnel.report,
            info=tunnel.info if tunnel.state == "connected" else None,
            latency_s=tunnel.latency_s if tunnel.state == "connected" else None,
            failures=tunnel.failures,
            retry_at=tunnel.retry_at,
            outdated=bool(tunnel.reached and tunnel.reached.build != build()),
            behind=self.mirrors.behind,
            runs=self.mirrors.runs,
        )

    def notice(self, problem: Problem) -> None:
        """Show `problem`, which describes a request of this server that this machine refused. It
        stays the server's problem until the server is disconnected, and is added to its notices, of
        which the newest `MOST_NOTICES` are kept."""
        self._noticed = problem
        self._notices.pop(problem.message, None)
        self._notices[problem.message] = problem
        while len(self._notices) > MOST_NOTICES:
            del self._notices[next(iter(self._notices))]
        self.home.changed()

    async def ask(self, question: Question) -> str | None:
        """Show the connection's question to the person and wait for the reply that `answer`
        delivers; None if cancelled."""
        pending = PendingQuestion(question, asyncio.get_running_loop().create_future())
        self._questions[question.id] = pending
        self.home.changed()
        try:
            return await pending.answer
        finally:
            del self._questions[question.id]
            self.home.changed()

    @property
    def living(self) -> bool:
        """Whether the server has active runs that this machine mirrors or whose judge requests it
        serves."""
        there = self.tunnel.state in ("connected", "reconnecting", "connecting", "starting")
        return there and any(run.state in ACTIVE_STATES for run in self.mirrors.runs)

    def answer(self, question: str, value: str | None) -> None:
        """Deliver the person's reply to the question with this id (`value` None: cancelled). Raises
        Refused if the question has expired."""
        pending = self._questions.get(question)
        if pending is None or pending.answer.done():
            raise Refused.of("host.no_question", "This login prompt has expired.", "Connect again.")
        pending.answer.set_result(value)

    async def close(self) -> None:
        self._noticed = None
        await self.tunnel.disconnect()
        await self.mirrors.stop_all()

    # While it is connected

    async def _serve(self, client: EngineClient) -> None:
        """Mirror runs and execute home requests until the connection is lost (LaunchError)."""
        tasks = [
            asyncio.create_task(self.mirrors.keep_up(client), name=f"runs of {self.spec.name}"),
            asyncio.create_task(self._run_requests(client), name=f"requests of {self.spec.name}"),
        ]
        try:
            await asyncio.gather(*tasks)
        finally:
            await cancel(*tasks)
            await self.mirrors.stop_all()

    async def _run_requests(self, client: EngineClient) -> None:
        """Execute home requests, each in its own task; results of expired requests are dropped."""
        running: set[asyncio.Task[None]] = set()
        try:
            while True:
                requested_at = time.monotonic()
                requests = await client.home_requests(REQUEST_WAIT_S)
                for request in requests:
                    if len(running) >= MOST_HOME_REQUESTS:
                        await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                    task = asyncio.create_task(self._run_request(client, request))
                    running.add(task)
                    task.add_done_callback(running.discard)
                if not requests and time.monotonic() - requested_at < IDLE_S:
                    await asyncio.sleep(IDLE_S)
        finally:
            await cancel(*running)

    async def _run_request(self, client: EngineClient, request: HomeRequest) -> None:
        if self.home.started.find(request.run_id, self.spec.name) is None:
            async with self._syncing:  # it may be the run that is just being started
                pass
        try:
            answer = HomeResponse(answer=await self.home.run_home_request(self.spec.name, request))
        except AtelierError as error:
            if error.problem.code == "home_request.refused":
                self.notice(error.problem)
            answer = HomeResponse(problem=error.problem)
        with contextlib.suppress(AtelierError):  # handed out again to whoever comes next
            await client.answer_home_request(request.id, answer)

    # Clusters

    async def reach(self, port: int) -> Path:
        """Connect if necessary, and return a local socket that is forwarded to a port on the
        server. Raises Refused, LaunchError."""
        await self.connected()
        return await self.tunnel.forward(port)

    async def connected(self) -> EngineClient:
        """Connect if necessary, and return the client of the remote engine. Waits without limit for
        a connection that was lost, `REACH_S` for the first one. Raises Refused with the
        connection's problem."""
        tunnel = self.tunnel
        if tunnel.state in ("away", "stopped"):
            tunnel.connect()
        end = time.monotonic() + (float("inf") if tunnel.reached else REACH_S)
        while tunnel.state != "connected":
            await asyncio.sleep(WAIT_S)
            if tunnel.state in ("away", "stopped") or time.monotonic() > end:
                why = tunnel.problem.message if tunnel.problem else "It did not answer in time."
                raise Refused.of(
                    "host.away",
                    f"{self.spec.name} is not connected. {why}",
                    f"Connect to it in Settings → Servers, or with `atelier hosts check "
                    f"{self.spec.name}`.",
                )
        return tunnel.client

    async def bring_model(self, name: str) -> None:
        """Make a base model available on the server, as for a run. Raises Refused."""
        try:
            tunnel = self.tunnel
            await ensure_model(tunnel.client, tunnel.shell, name, self._progress(name))
        finally:
            self.tunnel.tick = None
            self.home.changed()

    # Runs that begin there

    async def start(self, project: Path, request: StartRun | StartEvaluation) -> Path:
        """Upload the project's current files and start the run on the server. Returns the folder of
        its local copy, which usually has the first events already. Raises Refused, LaunchError,
        ConfigError."""
        client = self.tunnel.client
        key = request.key or uuid.uuid4().hex
        async with self._syncing:
            there = await self._prepare(client, project, request)
            if isinstance(request, StartEvaluation):
                request = _inside(request, project)
            ours = {"project": there, "host": "", "key": key, "lend_keys": False}
            config = await asyncio.to_thread(settings_of, project, request)
            models = provider_models(request)
            check_addresses(config, models)
            outgoing = request.model_copy(update=ours | self._keys_for(request, config, models))
            if isinstance(outgoing, StartRun):
                run = await client.start_run(outgoing)
            else:
                run = await client.start_evaluation(outgoing)
            folder = self.mirrors.new_folder(project, run.id)
            kept = StartedRun(
                run_id=run.id,
                host=self.spec.name,
                project=str(project),
                config=config,
                providers=models,
                keys_at_home=not request.lend_keys,
            )
            self.home.started.add(kept)
        await self.mirrors.follow(client, run.id, folder)
        await self.mirrors.until_here(run.id, 1)
        return folder

    def _keys_for(
        self, request: StartRun | StartEvaluation, config: ProjectConfig, models: list[str]
    ) -> dict[str, object]:
        """API keys that are lent to the run: only the keys it needs, and none if the person does
        not lend keys."""
        if not request.lend_keys:
            return {"keys_at_home": True}
        needed = providers_of(config, models)
        return {
            "provider_keys": {name: key for name, key in self.home.keys.items() if name in needed},
            "confirmed_addresses": [one for one in confirmed_addresses() if one.provider in needed],
        }

    async def _prepare(
        self, client: EngineClient, project: Path, request: StartRun | StartEvaluation
    ) -> str:
        """Upload model and project to the server where they differ; returns the project's folder on
        the server."""
        config = await asyncio.to_thread(load_config, project, request.overrides)
        if isinstance(request, StartRun):  # evaluations use no cluster
            refuse_cluster(config, self.spec.name)
        wanted = await asyncio.to_thread(project_manifest, project)
        folder_request = SyncFolder(folder=self.home.folder_name(project), manifest=wanted)
        try:
            shell, name = self.tunnel.shell, config.model.name
            await ensure_model(client, shell, name, self._progress(name))
            return (await push(client, project, folder_request, self._progress(project.name))).path
        finally:
            self.tunnel.tick = None
            self.home.changed()

    def _progress(self, words: str) -> Progress:
        def progress(done: int, total: int) -> None:
            self.tunnel.tick = HostTick(stage="syncing", words=words, done=done, total=total)
            self.home.changed()

        return progress


def refuse_cluster(config: ProjectConfig, server: str) -> None:
    """Raise ConfigError if the settings select a cluster: its address and key are on this
    machine."""
    if cluster := config.backend.cluster:
        raise ConfigError.of(
            "cluster.on_server",
            f"A run on {server} cannot use the cluster {cluster}.",
            "Start the run on this machine, or clear backend.cluster.",
            where="backend.cluster",
        )


def _inside(request: StartEvaluation, project: Path) -> StartEvaluation:
    """The request with the scenario file named relative to the project, as the server can find it.
    Raises Refused for a file outside of the project."""
    if request.scenarios in ("train", "validation"):
        return request
    file = (project / Path(request.scenarios).expanduser()).resolve()
    if not file.is_relative_to(project):
        raise Refused.of(
            "host.not_in_project",
            f"{file.name} is outside the project, but only files in the project are uploaded.",
            "Copy the file into the project.",
            where=str(file),
        )
    return request.model_copy(update={"scenarios": file.relative_to(project).as_posix()})
