"""Registry of remote servers: list, connections, and judge requests on their behalf."""

import asyncio
import contextlib
import platform
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import platformdirs

from engine.judge.providers.access import BoundWorker, start_worker
from engine.protocol.base import BaseEvent
from engine.protocol.problems import Refused
from engine.protocol.records.runs import ACTIVE_STATES, RunSummary
from engine.protocol.requests.home import HomeRequest
from engine.protocol.requests.remote import ActOnHost, HostList, HostSpec
from engine.protocol.requests.runs import StartEvaluation, StartRun
from engine.remote.cluster_list import read_clusters
from engine.remote.home_requests import HomeRequestService
from engine.remote.mirror.record import read_record
from engine.remote.server import Host
from engine.remote.server_list import home_id, read_server_list, write_server_list
from engine.remote.ssh.address import config_hosts
from engine.remote.ssh.connect import connect as by_ssh
from engine.remote.started_runs import StartedRuns
from engine.remote.tunnel.home import LocalMachine
from engine.remote.tunnel.tunnel import Connect
from engine.runtime.child import ChildDied


class HostService:
    """Remote servers of an engine. `projects` are folders whose runs may be remote, `runs` lists
    all runs of this engine, mirrored ones included."""

    def __init__(
        self,
        workspace: Path,
        projects: Callable[[], list[Path]],
        runs: Callable[[], list[RunSummary]],
        announce: Callable[[str, BaseEvent | None], None],
        keys: Mapping[str, str],
        connect: Connect = by_ssh,
    ) -> None:
        self._workspace, self._projects, self._runs = workspace, projects, runs
        self._announce = announce
        self._keys, self._connect = keys, connect
        self._hosts: dict[str, Host] = {}
        self._revision = 1
        self._changed = asyncio.Event()
        self._judge: BoundWorker | None = None
        self._starting = asyncio.Lock()
        self._loaded = self._leaving = False
        self._started = StartedRuns()
        self.home_requests = HomeRequestService(self._started, self._open_provider_client)

    @property
    def busy(self) -> bool:
        """Whether a connected server has active runs, so that this engine must not exit: it mirrors
        them and serves their judge requests."""
        return any(host.living for host in self._hosts.values())

    async def open(self) -> None:
        """Load the server list, and begin to reconnect to servers whose runs were active when last
        seen."""
        with contextlib.suppress(Refused):  # a damaged list: who asks for it is told
            self._load()
        for name in await asyncio.to_thread(self._waited_for):
            if name in self._hosts:
                self._hosts[name].tunnel.connect()

    async def close(self) -> None:
        self._leaving = True
        self._tell()  # whoever waits for news goes
        await asyncio.gather(*(host.close() for host in self._hosts.values()))
        if self._judge:
            await self._judge.close()

    # The list

    async def listed(self, after: int = 0, wait_s: float = 0.0) -> HostList:
        """Return the server list as soon as its revision exceeds `after`, or after `wait_s` seconds
        at the latest, unchanged."""
        self._load()
        if self._revision <= after and not self._leaving:
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), wait_s)
        views = [self._hosts[name].view() for name in sorted(self._hosts)]
        return HostList(revision=self._revision, hosts=views)

    async def known(self) -> list[str]:
        """Host aliases in the user's SSH configuration that are not in the list of servers."""
        addresses = {host.spec.address for host in self._hosts.values()}
        found = await asyncio.to_thread(config_hosts)
        return [one for one in found if one not in addresses]

    async def add(self, spec: HostSpec) -> None:
        """Add a server, replacing one of the same name, which is disconnected first."""
        self._load()
        servers = read_server_list()
        others = [one for one in servers.hosts if one.name != spec.name]
        write_server_list(servers.model_copy(update={"hosts": [*others, spec]}))
        if before := self._hosts.get(spec.name):
            await before.close()
        self._hosts[spec.name] = self._make(spec)
        self._tell()

    async def act(self, name: str, request: ActOnHost) -> None:
        """Connect, disconnect or forget server `name`, or queue a job on it, as `request.action`
        says. Raises Refused for an unknown server."""
        host = self.host(name)
        match request.action:
            case "connect":
                host.tunnel.connect()
            case "disconnect":
                await host.close()
            case "forget":
                await self._forget(host)
            case job:
                host.tunnel.do(job)
        self._tell()

    def host(self, name: str) -> Host:
        self._load()
        if name not in self._hosts:
            raise Refused.of(
                "host.unknown",
                f"There is no server called {name}.",
                "Add it in Settings, or with `atelier hosts add`.",
            )
        return self._hosts[name]

    # Runs that are elsewhere

    async def start(self, request: StartRun | StartEvaluation) -> Path:
        """Upload the project and start a run on server `request.host`; returns the local folder of
        its replica. Raises Refused, LaunchError, ConfigError."""
        project = Path(request.project).expanduser().resolve()
        return await self.host(request.host).start(project, request)

    def owner(self, folder: Path) -> Host | None:
        """Server of the mirrored run in `folder`; None for a run of this machine. Raises Refused
        where the server is unknown."""
        record = read_record(folder)
        return self.host(record.host) if record else None

    async def _forget(self, host: Host) -> None:
        waited = await asyncio.to_thread(self._waited_for)
        if host.spec.name in waited:
            raise Refused.of(
                "host.needed",
                f"Runs are active on {host.spec.name}.",
                "Stop the runs or wait, then remove the server.",
            )
        used = [one.name for one in await asyncio.to_thread(read_clusters)
                if one.host == host.spec.name]  # fmt: skip
        if used:
            raise Refused.of(
                "host.needed",
                f"The cluster {used[0]} is reached through {host.spec.name}.",
                f"Remove {used[0]} from the clusters first.",
            )
        await host.close()
        del self._hosts[host.spec.name]
        servers = read_server_list()
        kept = [one for one in servers.hosts if one.name != host.spec.name]
        write_server_list(servers.model_copy(update={"hosts": kept}))

    def _waited_for(self) -> set[str]:
        """Servers to reconnect to at start: those with runs that were active when last seen."""
        return {run.host for run in self._runs() if run.host and run.state in ACTIVE_STATES}

    def _load(self) -> None:
        if not self._loaded:
            servers = read_server_list()
            self._loaded = True
            self._home = LocalMachine(
                id=home_id(servers, self._workspace),
                name=platform.node(),
                projects=self._projects,
                announce=self._announce,
                keys=self._keys,
                run_home_request=self._run_home_request,
                changed=self._tell,
                started=self._started,
            )
            self._hosts = {spec.name: self._make(spec) for spec in servers.hosts}

    def _make(self, spec: HostSpec) -> Host:
        return Host(spec, self._home, self._connect)

    def _tell(self) -> None:
        self._revision += 1
        self._changed.set()

    # Judges that are asked here for runs elsewhere

    async def _run_home_request(self, host: str, request: HomeRequest) -> Any:
        """Execute a remote run's request in the local judge process, with the keys of this machine.
        Raises Refused for a request that the run is not allowed to make."""
        try:
            return await self.home_requests.answer(host, request)
        except ChildDied:  # another one is asked once more
            return await self.home_requests.answer(host, request)

    async def _open_provider_client(self) -> BoundWorker:
        """Return the judge process with the current API keys; starts it if it is not running."""
        async with self._starting:
            if self._judge is None or not self._judge.alive:
                if self._judge:
                    await self._judge.close()
                log = Path(platformdirs.user_log_dir("atelier")) / "home-requests.log"
                log.parent.mkdir(parents=True, exist_ok=True)
                self._judge = await start_worker("home requests", log)
            await self._judge.ask("keys", keys=dict(self._keys))
            return self._judge
