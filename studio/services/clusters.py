"""Clusters: their list, the cluster on which each project trains, and actions on a cluster. The
engine has the list. `changed` is emitted when the list or a connection test changes."""

from PySide6.QtCore import QObject, QTimer, Signal, Slot

from engine.client import EngineClient
from engine.protocol.config.project import ProjectConfig
from engine.protocol.problems import Problem
from engine.protocol.requests.clusters import (
    ClusterList,
    ClusterSpec,
    ClusterView,
    LaunchCommands,
    LaunchRequest,
    StartCluster,
)
from engine.protocol.requests.runs import StartRun
from studio.link.engine import EngineLink
from studio.runtime.tasks import Done, Failed, TaskScope
from studio.services import api_keys
from studio.services.key_lending import cluster_key, cluster_slot, lend_to_cluster, slot_content
from studio.services.servers import Hosts
from studio.services.settings import SettingsStore
from studio.store.servers.cluster_rows import CHANGING, ClusterRow, row_of

SETTING = "backend.cluster"
POLL_MS = 2000
"""Interval of reloads while SkyRL is being installed or started."""


def cluster_of(request: StartRun, config: ProjectConfig | None) -> str:
    """Return the name of the cluster on which a requested run trains (empty: none); `config` are
    its settings before overrides."""
    name = request.overrides.get(SETTING, config.backend.cluster if config else "")
    return str(name)


class Clusters(QObject):
    """Clusters of a session."""

    changed = Signal()

    def __init__(
        self, link: EngineLink, settings: SettingsStore, hosts: Hosts, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._link, self._settings, self._hosts = link, settings, hosts
        self.all: list[ClusterView] = []
        self.problem: Problem | None = None
        """Why the list could not be loaded."""
        self.tasks = TaskScope(self)
        self.tasks.busy_changed.connect(self._busy_changed)
        self._watched = False
        """Whether the list is in view."""
        self._connected: set[str] = set()
        """Servers that were connected when the list was last requested."""
        self._poll = QTimer(self)
        self._poll.setInterval(POLL_MS)
        self._poll.timeout.connect(self._reload)
        hosts.changed.connect(self._hosts_changed)

    def _busy_changed(self, job: str, busy: bool) -> None:
        if job.partition(" ")[0] in ("check", "start", "stop"):
            self.changed.emit()

    async def close(self) -> None:
        self._poll.stop()
        await self.tasks.close()

    @property
    def _client(self) -> EngineClient:
        return self._link.client

    # List of clusters

    def refresh(self) -> None:
        """Reload the list from the engine."""
        self.tasks.run("list", self._load(), failed=self._not_loaded)

    def watch(self, watched: bool) -> None:
        """Reload the list every two seconds while it is in view (`watched`) and the state of a
        server changes by itself."""
        self._watched = watched
        self._set_poll()

    def _set_poll(self) -> None:
        states = [view.server.state for view in self.all if view.server is not None]
        wanted = self._watched and any(state in CHANGING for state in states)
        if wanted != self._poll.isActive():
            self._poll.start() if wanted else self._poll.stop()

    @Slot()
    def _reload(self) -> None:
        if not self.tasks.busy("list"):
            self.refresh()

    @Slot()
    def _hosts_changed(self) -> None:
        """Reload the list after a server of a cluster was connected or lost, which shows or hides
        the state of SkyRL there."""
        used = {view.spec.host for view in self.all if view.spec.host}
        if not used:
            return
        connected = {name for name in used if self._hosts.connected(name)}
        if connected != self._connected:
            self._connected = connected
            self.refresh()
        self.changed.emit()

    def row(self, view: ClusterView) -> ClusterRow:
        """Return a cluster as shown in lists."""
        return row_of(view, self.testing(view.spec.name), self._hosts.view(view.spec.host))

    def view(self, name: str) -> ClusterView | None:
        """Return a cluster; None if it is not in the list."""
        return next((one for one in self.all if one.spec.name == name), None)

    def testing(self, name: str) -> bool:
        """Return whether a connection test of a listed cluster is running."""
        return self.tasks.busy(f"check {name}")

    async def _load(self) -> None:
        self._take(await self._client.clusters())

    def _take(self, found: ClusterList) -> None:
        self.all, self.problem = found.clusters, None
        self._set_poll()
        self.changed.emit()

    def _not_loaded(self, problem: Problem) -> None:
        self.problem = problem
        self.changed.emit()

    # Cluster of each project

    def chosen(self, project: str, config: ProjectConfig | None) -> str:
        """Return the name of the cluster on which a project (path) trains, as chosen in the header,
        or else as set in project.toml; empty is none."""
        named = config.backend.cluster if config else ""
        return self._settings.current.clusters.get(project, named)

    def choose(self, project: str, name: str, config: ProjectConfig | None) -> None:
        """Select the cluster (empty: none) on which a project (path) trains."""
        others = {p: n for p, n in self._settings.current.clusters.items() if p != project}
        named = config.backend.cluster if config else ""
        self._settings.update(clusters=others | ({project: name} if name != named else {}))
        self.changed.emit()

    def override(self, name: str, config: ProjectConfig | None) -> dict[str, str]:
        """Return the setting with which runs start on a cluster (empty: none), if these settings do
        not select it; else empty."""
        return {SETTING: name} if config and name != config.backend.cluster else {}

    def with_choice(self, request: StartRun, config: ProjectConfig | None) -> StartRun:
        """Return a start request with the cluster chosen for its project; `config` are the run's
        settings. A run on a server uses none, and one from a checkpoint trains where the checkpoint
        was trained."""
        if config is None or request.origin or SETTING in request.overrides:
            return request
        name = "" if request.host else self.chosen(request.project, config)
        overrides = {**request.overrides, **self.override(name, config)}
        return request.model_copy(update={"overrides": overrides})

    # Actions on a cluster

    def test(self, name: str) -> None:
        """Test the connection to a listed cluster; the result appears in the list."""
        self.tasks.run(f"check {name}", self._test(name), failed=self._not_loaded)

    async def _test(self, name: str) -> None:
        await self.prepare(name)
        await self._client.check_cluster(name)
        await self._load()

    async def prepare(self, name: str) -> None:
        """Connect the server through which a cluster (name empty: none) is reached, and pass the
        cluster's key to the engine. A failed keyring is emitted by `tasks.failed` if the cluster
        needs a key. Raises Refused if the server cannot be connected."""
        try:
            await self._prepare(name)
        except api_keys.KeyringError as error:
            self.tasks.failed.emit("key", error.problem)

    async def _prepare(self, name: str) -> None:
        if name and self.view(name) is None:
            await self._load()
        if (view := self.view(name)) is not None:
            if view.spec.host:
                await self._hosts.ready(view.spec.host)
            await lend_to_cluster(self._client, view)

    async def has_key(self, spec: ClusterSpec) -> bool:
        """Return whether a key for this cluster and address is stored. Raises KeyringError if the
        keyring is locked or does not respond."""
        try:
            return bool(await cluster_key(spec))
        except api_keys.KeyringError as error:
            if error.problem.code != api_keys.NO_KEYRING:
                raise
            return False

    def test_settings(self, spec: ClusterSpec, key: str, done: Done, failed: Failed) -> None:
        """Test the connection with settings that need not be saved; `key` empty: the stored one.
        Calls `done(ClusterView)` or `failed(problem)`."""
        self.tasks.run("test", self._test_settings(spec, key), done, failed)

    async def _test_settings(self, spec: ClusterSpec, key: str) -> ClusterView:
        if spec.host:
            await self._hosts.ready(spec.host)
        if not key and spec.skyrl is None and self.view(spec.name) is not None:
            key = await cluster_key(spec)
        return await self._client.check_cluster_settings(spec, key)

    def save(self, spec: ClusterSpec, key: str, done: Done, failed: Failed) -> None:
        """Add a cluster or change it, lend its key (empty: unchanged) to the engine and store it in
        the keyring. Calls `done(None)` or `failed(problem)`."""
        self.tasks.run("save", self._save(spec, key), done, failed)

    async def _save(self, spec: ClusterSpec, key: str) -> None:
        await self._client.put_cluster(spec)
        if key:
            await self._client.lend_cluster_key(spec.name, key)
        await self._load()
        if key:
            await api_keys.put(cluster_slot(spec.name), slot_content(spec, key))

    def remove(self, name: str) -> None:
        """Remove a cluster and its stored key; the engine stops SkyRL if it runs as this cluster.
        Projects that were to train there train on this machine."""
        self.tasks.run(f"remove {name}", self._remove(name))

    async def _remove(self, name: str) -> None:
        self._take(await self._client.remove_cluster(name))
        kept = {p: n for p, n in self._settings.current.clusters.items() if n != name}
        self._settings.update(clusters=kept)
        try:
            await api_keys.delete(cluster_slot(name))
        except api_keys.KeyringError as error:
            if error.problem.code != api_keys.NO_KEYRING:
                raise

    # SkyRL's server

    def start(
        self,
        name: str,
        request: StartCluster,
        done: Done | None = None,
        failed: Failed | None = None,
    ) -> None:
        """Start SkyRL as a cluster, on this machine or a server, which is connected first; a start
        uploads the model that the server lacks. SkyRL that runs as this cluster with other settings
        is replaced. Calls `done(None)` or `failed(problem)`."""
        self.tasks.run(f"start {name}", self._start(name, request), done, failed)

    async def _start(self, name: str, request: StartCluster) -> None:
        if request.host:
            await self._hosts.ready(request.host)
        await self._client.start_cluster(name, request)
        await self._load()

    def restart(self, name: str) -> None:
        """Start SkyRL of a listed cluster again, with its stored settings."""
        view = self.view(name)
        if view is not None and view.spec.skyrl is not None:
            self.start(name, StartCluster(host=view.spec.host, settings=view.spec.skyrl))

    def stop(self, name: str) -> None:
        """End SkyRL of a listed cluster; its checkpoints stay."""
        self.tasks.run(f"stop {name}", self._stop(name))

    async def _stop(self, name: str) -> None:
        await self._client.stop_cluster(name)
        await self._load()

    def starting(self, name: str) -> bool:
        """Return whether the start of SkyRL is on its way to the engine."""
        return self.tasks.busy(f"start {name}")

    def busy_with(self, name: str) -> str:
        """Return the action on a cluster that is in progress: start, stop or test; else empty."""
        if self.starting(name):
            return "start"
        if self.tasks.busy(f"stop {name}"):
            return "stop"
        return "test" if self.testing(name) else ""

    def connect_host(self, name: str) -> None:
        """Connect the server through which a cluster is reached."""
        if (view := self.view(name)) is not None and view.spec.host:
            self._hosts.act(view.spec.host, "connect")

    def upload_share(self, host: str) -> float | None:
        """Return the uploaded share of a model, 0 to 1, on its way to a server; None if nothing is
        uploaded."""
        done_total = self._hosts.bringing(host) if host else None
        return min(1.0, done_total[0] / done_total[1]) if done_total and done_total[1] else None

    async def launch_commands(self, request: LaunchRequest) -> LaunchCommands:
        """Return the commands that start SkyRL by hand."""
        return await self._client.launch_commands(request)
