"""Session of the studio: one engine, one project, one run, and the actions on them.

Methods are the actions; signals report what changed, to the window and the pages. Calls to the
engine run in `tasks`, by name; failures are emitted as `problem_raised`."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from PySide6.QtCore import QObject, Signal, Slot

from engine.client import EngineClient
from engine.protocol.config.project import ProjectConfig
from engine.protocol.problems import LaunchError, Problem
from engine.protocol.records.choices import Sample
from engine.protocol.records.runs import ACTIVE_STATES, ProjectView, RunSummary, TrainingKind
from engine.protocol.requests.runs import Command, CreateProject, EditProject, StartRun
from studio.link.engine import EngineLink
from studio.link.engine_state import LinkState
from studio.models.event_feed import Feed
from studio.models.run import RunModel
from studio.runtime.tasks import Failed, TaskScope, command_job
from studio.services import key_lending
from studio.services.clusters import Clusters, cluster_of
from studio.services.followed_runs import Following
from studio.services.project_opening import first_shown, read_project
from studio.services.run_news import RunNews
from studio.services.servers import Hosts
from studio.services.settings import SettingsStore, login_name
from studio.store.projects.project import ProjectStore
from studio.store.runs.runs import RunStore

Done = Callable[[Any], None]


class Session(QObject):
    """Actions of the studio. Owns no widget."""

    engine_changed = Signal(object)
    project_changed = Signal()
    projects_changed = Signal()
    runs_changed = Signal()
    place_wanted = Signal(str)
    problem_raised = Signal(object)
    notice = Signal(str)

    def __init__(
        self,
        link: EngineLink,
        feed: Feed,
        runs: RunStore,
        settings: SettingsStore,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self.link, self.feed, self.runs, self.settings = link, feed, runs, settings
        self.project = ProjectStore()
        self.projects: list[ProjectView] = []
        self.samples: list[Sample] = []
        self.run = RunModel(runs, feed, self)
        self.following = Following(link.pump, runs, self._shown)
        self.tasks = TaskScope(self)
        self.hosts = Hosts(link, feed, settings, self)
        self.clusters = Clusters(link, settings, self.hosts, self)
        for scope in (self.tasks, self.hosts.tasks, self.clusters.tasks):
            scope.failed.connect(lambda _, problem: self.problem_raised.emit(problem))
        self.hosts.run_states_changed.connect(self._run_states_changed)
        self.starting_on = ""
        """Name of the server on which a run is being started; empty if none."""
        self._writing: set[asyncio.Task[None]] = set()
        """Edits in progress; runs requested meanwhile start after them."""
        self._turns: dict[str, asyncio.Lock] = {}
        """Run id → lock, so that the commands of a run are sent in order."""
        self._known_status: dict[str, str] = {}
        self.news = RunNews(self)
        self._contact = "none"
        feed.link_changed.connect(self._link_changed)
        feed.run_changed.connect(self._run_changed)
        feed.gap_found.connect(self._restart_stream)
        feed.run_lost.connect(lambda _, problem: self.problem_raised.emit(problem))

    @property
    def client(self) -> EngineClient:
        """Return the client of the engine. Raises LaunchError while no engine is open."""
        return self.link.client

    @property
    def annotator(self) -> str:
        """Return the name under which labels are stored: that of the settings, or the login name;
        empty if the user has neither."""
        return self.settings.current.annotator.strip() or login_name()

    @property
    def connected(self) -> bool:
        return self.feed.link.contact == "connected"

    def start(self, project: str = "", place: str = "") -> None:
        """Start the event pump and the engine, then open a project (path; empty: none) on the page
        `place` (key; empty: stay on the current page)."""
        self.link.pump.start()
        self.open_engine(project, place)

    async def close(self) -> None:
        """Close all connections and tasks. The engine and its runs continue."""
        await self.hosts.close()
        await self.clusters.close()
        await self.tasks.close()
        await self.link.close()

    def open_engine(self, project: str = "", place: str = "") -> None:
        """Find or start the engine, then open a project (path; empty: none) on the page `place`
        (key; empty: stay on the current page)."""
        self.feed.set_link(LinkState("starting", self.feed.link.info))
        self.tasks.run("engine", self._open_engine(project, place), failed=self._engine_failed)

    async def _open_engine(self, project: str = "", place: str = "") -> None:
        endpoint = await self.link.open()
        if endpoint.notice:
            self.problem_raised.emit(Problem(code="launch.fell_back", message=endpoint.notice))
        await self._ask_all()
        self.feed.set_link(LinkState("connected", await self.client.info()))
        if project:
            await self._open_project(project, place)

    def _engine_failed(self, problem: Problem) -> None:
        self.feed.set_link(LinkState("gone", self.feed.link.info, problem=problem))
        self.problem_raised.emit(problem)

    def restart_engine(self) -> None:
        """Stop the engine after pending writes (by a signal if it does not respond), and start it
        again; its runs stop and can be resumed."""
        self.tasks.run("engine", self._restart_engine(), failed=self._engine_failed)

    async def _restart_engine(self) -> None:
        try:
            await self.link.shut_down()
        except LaunchError:
            self.link.kill()
        self.feed.set_link(LinkState("starting", self.feed.link.info))
        await self._open_engine()

    def refresh(self) -> None:
        """Reload projects, runs and, if not loaded yet, sample projects."""
        self.tasks.run("refresh", self._ask_all())

    async def _ask_all(self) -> None:
        self.runs.replace(await self.client.runs(recent=True))
        self.projects = await self.client.projects()
        self.samples = self.samples or await self.client.samples()
        self.clusters.refresh()
        for run in self.runs.active():
            self.following.begin(run.id)
        self.projects_changed.emit()
        self.runs_changed.emit()
        self.run.tell()

    @Slot(object)
    def _link_changed(self, state: LinkState) -> None:
        before, self._contact = self._contact, state.contact
        self.engine_changed.emit(state)
        if state.contact != "connected":
            return
        if before in ("reconnecting", "gone"):
            self.tasks.run("reopen", self._reopen())
        elif state.info is not None and state.info.living_runs != len(self.runs.active_here()):
            self.refresh()  # another program started or ended a run

    @Slot()
    def _run_states_changed(self) -> None:
        """Reload after a run on a server was started or ended, possibly by another program."""
        if self.connected:
            self.refresh()

    async def _reopen(self) -> None:
        if await self.link.reopen():
            await self._ask_all()

    def open_project(self, path: str, place: str = "setup") -> None:
        """Open the project at `path`, select its active or newest run, and show the page `place`
        (key); the Run page instead of Setup if a run is active."""
        self.tasks.run("project", self._open_project(path, place))

    async def _open_project(self, path: str, place: str) -> None:
        view = await read_project(self.client, path)
        newest = await self.client.runs(view.path, recent=True)  # newer than the last refresh
        self.show_project(view)
        for run in reversed(newest):
            self.runs.put(run)
        runs = self.runs.of(self.project.path)
        first = first_shown(runs)
        self.select_run(first.id if first else "")
        self.settings.remember_project(self.project.path)
        if place:
            living = first is not None and first.state in ACTIVE_STATES
            self.place_wanted.emit("run" if living and place == "setup" else place)

    def create_project(self, folder: str, sample: str | None) -> None:
        """Create a project in `folder` from a sample (None: a small template), and show it."""

        async def create() -> None:
            request = CreateProject(folder=folder, sample=sample)
            await self.show_made(await self.client.create_project(request))

        self.tasks.run("project", create())

    async def show_made(self, view: ProjectView) -> None:
        """Open a newly created project on its Setup page, and reload the lists."""
        await self._open_project(view.path, "setup")
        await self._ask_all()

    def edit(self, request: EditProject, done: Done, failed: Callable[[Problem], None]) -> None:
        """Write project.toml of the open project and show the result, then call `done(None)` or
        `failed(problem)`."""
        path = self.project.path

        async def write() -> None:
            view = await self.client.edit_project(path, request)
            if self.project.path == path:
                self.show_project(view)
            else:  # another project was opened meanwhile and stays open
                self._list_project(view)
                self.projects_changed.emit()

        name = f"edit {path} {sorted(request.values or ())}"
        self.write_first(self.tasks.run(name, write(), done, failed))

    @property
    def writing(self) -> bool:
        """Whether an edit is in progress."""
        return bool(self._writing)

    def write_first(self, job: "asyncio.Task[None] | None") -> None:
        """Register a job that writes project files (None: ignored); starting a run waits for its
        end."""
        if job is not None:
            self._writing.add(job)
            job.add_done_callback(self._writing.discard)

    def show_project(self, view: ProjectView) -> None:
        """Make a project the open one and list it."""
        self.project.open(view)
        self._list_project(view)
        self.project_changed.emit()

    def _list_project(self, view: ProjectView) -> None:
        self.projects = [view if one.path == view.path else one for one in self.projects]

    # Runs

    def _shown(self) -> set[str]:
        """Ids of the selected run and of its parent."""
        parent = self.run.origin
        return {one for one in (self.run.run_id, parent.run_id if parent else "") if one}

    def select_run(self, run_id: str) -> None:
        """Select a run and follow its events from the last known one."""
        self.run.select(run_id)
        for shown in self._shown():
            self.following.begin(shown)
        self.runs_changed.emit()

    def open_run(self, run: RunSummary, place: str = "run") -> None:
        """Select a run, open its project if necessary, and show the page `place`."""

        async def go() -> None:
            if run.project_path != self.project.path:
                await self._open_project(run.project_path, "")
            self.select_run(run.id)
            self.place_wanted.emit(place)

        self.tasks.run("project", go())

    def train(
        self,
        kind: TrainingKind = "train",
        overrides: dict[str, Any] | None = None,
        show: bool = True,
        lend: bool = False,
    ) -> None:
        """Start a run (train, sft or baseline) of the open project on the project's server, and
        open its page if `show`; `overrides`: setting → value. `lend` passes the judges' API keys to
        that server."""
        request = StartRun(
            project=self.project.path, kind=kind, overrides=overrides or {}, queue=True
        )
        self.start_run(request.model_copy(update={"lend_keys": lend}), show)

    def start_run(self, request: StartRun, show: bool = True, failed: Failed | None = None) -> None:
        """Start a run, or queue it if the device is busy; ignored while another one is starting.
        `show` opens its page; `failed(problem)` is called on failure (None: emits
        `problem_raised`)."""
        if not self.tasks.busy("train"):
            host = self.place_of(request)
            request = request.model_copy(update={"key": uuid.uuid4().hex, "host": host})
            request = self.clusters.with_choice(request, self._config_of(request))
            self.starting_on = host
            self.tasks.run("train", self._train(request, show), failed=failed)

    def cancel_start(self) -> None:
        """Stop waiting for the start of a run. If the request was already sent to a server, the run
        may still start there."""
        is_sent = self.starting_on and self.hosts.connected(self.starting_on)
        if is_sent and self.tasks.busy("train"):
            self.notice.emit(
                f"{self.starting_on} may already have received the request. If the run starts "
                "there, stop it."
            )
        self.tasks.cancel("train")

    def place_of(self, request: StartRun) -> str:
        """Return the server on which a run would start (empty: this machine): that of the run from
        whose checkpoint it starts, else the one selected for the project."""
        if not request.origin:
            return self.hosts.chosen(request.project)
        wanted = request.origin.partition("@")[0]
        runs = self.runs.of(request.project)
        return next((run.host for run in runs if wanted in (run.id, run.name)), "")

    @property
    def cluster(self) -> str:
        """Name of the cluster on which the open project trains; empty is none."""
        path = self.project.path
        return "" if self.hosts.chosen(path) else self.clusters.chosen(path, self._config)

    def choose_place(self, server: str, cluster: str) -> None:
        """Select the server or the cluster (both empty: this machine) on which the open project
        trains."""
        self.hosts.choose(self.project.path, server)
        self.clusters.choose(self.project.path, cluster, self._config)
        where = server or cluster or "this machine"
        self.notice.emit(f"{self.project.name} will train on {where}.")

    def _config_of(self, request: StartRun) -> ProjectConfig | None:
        """Return the settings of a run before overrides: those of the run from whose checkpoint it
        starts, else of its project; None while unknown."""
        wanted = request.origin.partition("@")[0]
        for run in self.runs.of(request.project) if wanted else ():
            if wanted in (run.id, run.name):
                spec = self.runs.state(run.id).spec
                return spec.config if spec else None
        view = next((one for one in self.projects if one.path == request.project), None)
        return view.config if view else None

    async def _train(self, request: StartRun, show: bool) -> None:
        if self._writing:
            await asyncio.wait(self._writing)
        await self.lend_keys()
        await self.clusters.prepare(cluster_of(request, self._config_of(request)))
        if request.host:
            run = await self.hosts.begin(request.host, lambda client: client.start_run(request))
        else:
            run = await self.client.start_run(request)
        self.runs.put(run)
        if run.state == "queued":
            others = [one.name for one in self.runs.active() if one.host == run.host]
            before = next((name for name in others if name != run.name), "the previous run")
            self.notice.emit(f"{run.name} is queued. It starts after {before}.")
        if show and request.project == self.project.path:
            self.select_run(run.id)
            self.place_wanted.emit("run")
            return
        self.following.begin(run.id)
        if show and run.state != "queued":  # another project was opened since the request
            where = f" on {run.host}" if run.host else ""
            self.notice.emit(f"{run.name} of {run.project} started{where}.")
        self.runs_changed.emit()

    async def lend_keys(self, others: Sequence[str] = ()) -> None:
        """Pass the API keys of the open project's judges and trackers, and of `others` (LiteLLM
        model names), to the engine. A keyring failure is emitted as `problem_raised`."""
        if problem := await key_lending.lend(self.client, self._config, others):
            self.problem_raised.emit(problem)

    @property
    def _config(self) -> ProjectConfig | None:
        return self.project.view.config if self.project.view else None

    def track(self) -> None:
        """Send the project's trackers the data of the selected run that they lack."""

        async def send(client: EngineClient) -> None:
            await key_lending.lend_to_trackers(client, self._config)
            await client.track(self.run.run_id)

        self._job("track", send, lambda _: self.runs_changed.emit())

    def command(
        self, action: str, steps: int | None = None, run_id: str = "", rubric: str = ""
    ) -> None:
        """Send a command to a run (empty id: the selected one): pause, continue, reviewed (ends a
        review), use_rubric (its text is `rubric`), stop_after_step, stop_now, resume, extend (to
        `steps` in all) or keep (saves a checkpoint after the step)."""
        wanted = run_id or self.run.run_id
        fields = {"action": action, "steps": steps, "rubric": rubric, "key": uuid.uuid4().hex}
        order = Command.model_validate(fields)

        run = self.runs.summary(wanted)
        host = run.host if run is not None else ""

        async def give(client: EngineClient) -> RunSummary:
            async with self._turns.setdefault(wanted, asyncio.Lock()):
                if self.hosts.away(host):
                    await self.hosts.ready(host)
                if action in ("resume", "extend"):
                    await self.lend_keys()
                    spec = self.runs.state(wanted).spec
                    await self.clusters.prepare(spec.config.backend.cluster if spec else "")
                return await client.command(wanted, order)

        self._job(command_job(action, wanted), give, self.take_run)

    def take_run(self, run: RunSummary) -> None:
        """Store a new or changed run summary and follow its events."""
        self.runs.put(run)
        self.following.begin(run.id)
        self.run.tell()
        self.runs_changed.emit()

    @Slot(str)
    def _run_changed(self, run_id: str) -> None:
        """Emit `runs_changed` if status or step of a run changed, and announce news of it."""
        state = self.runs.state(run_id)
        status = f"{state.status} {state.done}"
        if self._known_status.get(run_id) != status:
            self._known_status[run_id] = status
            self.runs_changed.emit()
        self.news.look(self.runs.summary(run_id), state)

    @Slot(str, int)
    def _restart_stream(self, run_id: str, seq: int) -> None:
        self.following.restart(run_id, seq)

    def _job(
        self, name: str, ask: Callable[[EngineClient], Awaitable[Any]], done: Done | None = None
    ) -> None:
        self.tasks.run(name, self._call(ask), done)

    async def _call(self, ask: Callable[[EngineClient], Awaitable[Any]]) -> Any:
        return await ask(self.client)

    @property
    def judged(self) -> bool:
        """Whether the open project's judge needs an API key."""
        judge = self._config.judge if self._config else None
        return bool(judge and judge.enabled and judge.models and not judge.base_url)
