"""Clusters: the user's list, their API keys in memory, connection tests, the way to each, and
starts of SkyRL's server."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from engine.integrations.skyrl.server import CLIENT
from engine.policy.tinker.check import check_cluster
from engine.policy.tinker.cluster import ClusterAccess
from engine.protocol.config.project import ProjectConfig
from engine.protocol.problems import AtelierError, ConfigError, Problem, Refused
from engine.protocol.requests.clusters import (
    CheckCluster,
    ClusterList,
    ClusterReport,
    ClusterSpec,
    ClusterView,
    DiscardSaved,
    SkyrlServer,
    StartCluster,
    StartSkyrl,
)
from engine.remote.cluster_list import (
    find_cluster,
    put_cluster,
    read_clusters,
    remove_cluster,
    require_encryption,
)
from engine.remote.registry import HostService
from engine.runtime.closing import cancel
from engine.server.services.clusters.skyrl import SkyrlService
from engine.server.services.runs.work import ActiveRuns, has_ended

WAIT_S = 1.0
CLOSING_S = 60.0
"""Maximum time in seconds that the cleanup of a run takes after its last event."""
STATE_S = 5.0
"""Timeout in seconds for the state of SkyRL's server on another machine."""
ConnectionTest = Callable[[ClusterAccess], Awaitable[ClusterReport]]
"""Connection test; raises AtelierError."""


@dataclass(frozen=True)
class Tested:
    """Result of a connection test with these settings and this API key."""

    spec: ClusterSpec
    key: str = field(repr=False)
    report: ClusterReport | None
    problem: Problem | None


class ClusterService:
    """Clusters of the user, as this engine knows them. `keys` (cluster → API key) are those that
    runs use; `skyrl` is SkyRL's server on this machine."""

    def __init__(
        self,
        keys: MutableMapping[str, str],
        active: ActiveRuns,
        hosts: HostService,
        skyrl: SkyrlService,
        check: ConnectionTest = check_cluster,
    ) -> None:
        self._keys, self._active, self._hosts, self._check = keys, active, hosts, check
        self._skyrl = skyrl
        self._tested: dict[str, Tested] = {}
        """Newest test of each cluster, also of one that is not in the list yet."""
        self._checking: dict[tuple[ClusterSpec, str], asyncio.Task[Tested]] = {}

    @property
    def busy(self) -> bool:
        return bool(self._checking)

    async def close(self) -> None:
        """Cancel connection tests."""
        await cancel(*self._checking.values())

    async def listed(self) -> ClusterList:
        """All clusters by name, with the results of their connection tests in this engine, and the
        states of the servers that Atelier runs."""
        specs = await asyncio.to_thread(read_clusters)
        started = {spec.host for spec in specs if spec.skyrl is not None}
        states = await asyncio.gather(*(self._state(host) for host in started))
        servers = dict(zip(started, states, strict=True))
        return ClusterList(clusters=[self._view(spec, servers) for spec in specs])

    async def _state(self, host: str) -> SkyrlServer | None:
        """State of SkyRL's server on a machine (empty: this one); None while not connected."""
        if not host:
            return self._skyrl.view
        try:
            async with asyncio.timeout(STATE_S):
                return await self._hosts.host(host).tunnel.client.skyrl()
        except (AtelierError, TimeoutError):
            return None

    async def put(self, spec: ClusterSpec) -> None:
        """Add a cluster or change its settings. A key that was lent for another address is
        forgotten. Raises ConfigError for an address that is not encrypted, Refused if an active run
        uses the cluster with other settings, or if its server is unknown."""
        if spec.host:
            self._hosts.host(spec.host)
        earlier = await self._find(spec.name)
        if earlier and earlier != spec:
            await self._require_unused(spec.name, "then change the cluster")
        await asyncio.to_thread(put_cluster, spec)
        if earlier and earlier.place != spec.place:
            self._keys.pop(spec.name, None)

    async def remove(self, name: str) -> None:
        """Remove a cluster from the list, forget its key, and end SkyRL's server if it runs as this
        cluster; on a server that is not connected it goes on. Raises Refused if it is unknown, or
        used by an active run."""
        spec = await self._require(name)
        await self._require_unused(name, "then remove the cluster")
        if spec.skyrl is not None:
            with contextlib.suppress(AtelierError):  # its machine is not connected, or is gone
                await self._end_server(spec)
        await asyncio.to_thread(remove_cluster, name)
        self._keys.pop(name, None)
        self._tested.pop(name, None)

    # SkyRL's server

    async def start(self, name: str, request: StartCluster) -> ClusterView:
        """Begin to start SkyRL's server as cluster `name`, and add the cluster to the list; a
        server that lacks the model receives it first. One that runs as this cluster with other
        settings is replaced. Raises Refused, also while an active run uses it with other settings,
        ConfigError, ModelError, LaunchError."""
        earlier = await self._find(name)
        if earlier and (earlier.skyrl is None or earlier.host != request.host):
            where = earlier.place if earlier.skyrl is None else earlier.host or "this machine"
            raise Refused.of(
                "cluster.exists",
                f"There is a cluster {name} already, at {where}.",
                "Choose another name, or remove it first.",
                where="name",
            )
        if earlier and earlier.skyrl != request.settings:
            await self._require_unused(name, "then change its settings")
        order = StartSkyrl(cluster=name, settings=request.settings)
        if request.host:
            host = self._hosts.host(request.host)
            client = await host.connected()
            await host.bring_model(request.settings.model)
            server = await client.start_skyrl(order)
        else:
            server = await self._skyrl.start(order)
        spec = ClusterSpec(
            name=name,
            address=f"http://127.0.0.1:{server.port}",
            client=CLIENT,
            host=request.host,
            skyrl=request.settings,
        )
        await asyncio.to_thread(put_cluster, spec)
        return self._view(spec, {request.host: server})

    async def stop(self, name: str) -> ClusterView:
        """End SkyRL's server of a cluster. Raises Refused if Atelier did not start it, while an
        active run uses it, or while its machine is not connected."""
        spec = await self._require(name)
        if spec.skyrl is None:
            raise Refused.of(
                "cluster.not_ours",
                f"{name} was not started by Atelier.",
                "Stop it where it was started.",
            )
        await self._require_unused(name, "then stop the cluster")
        if spec.host:
            await self._hosts.host(spec.host).connected()
        return self._view(spec, {spec.host: await self._end_server(spec)})

    async def _end_server(self, spec: ClusterSpec) -> SkyrlServer:
        """End the server if it runs as this cluster; returns the state of its machine. Raises
        Refused if that is not connected."""
        if not spec.host:
            ours = self._skyrl.view.cluster == spec.name
            return await self._skyrl.stop() if ours else self._skyrl.view
        client = self._hosts.host(spec.host).tunnel.client
        server = await client.skyrl()
        return await client.stop_skyrl() if server.cluster == spec.name else server

    async def access(self, config: ProjectConfig) -> ClusterAccess | None:
        """Access to the cluster of the settings; None if they name none. Waits until its server is
        connected and its SkyRL is ready. Raises Refused if it is not in the list or not running,
        ConfigError for an address that is not encrypted."""
        name = config.backend.cluster
        if not name:
            return None
        spec = await asyncio.to_thread(find_cluster, name)
        if spec.skyrl is not None:
            spec = await self._until_running(spec)
        socket = await self._socket(spec)
        discard = partial(self._discard, spec) if spec.skyrl else None
        return ClusterAccess(spec, self._keys.get(name, ""), socket, discard)

    async def _discard(self, spec: ClusterSpec, path: str) -> None:
        """Delete a snapshot or saved state of a server that Atelier runs. Raises Refused,
        LaunchError."""
        request = DiscardSaved(cluster=spec.name, path=path)
        if spec.host:
            await self._hosts.host(spec.host).tunnel.client.discard_saved(request)
        else:
            await self._skyrl.discard(request)

    async def _socket(self, spec: ClusterSpec) -> Path | None:
        """Local socket that leads to the address of a cluster behind a server."""
        if not spec.host:
            return None
        return await self._hosts.host(spec.host).reach(urlsplit(spec.address).port or 80)

    async def _until_running(self, spec: ClusterSpec) -> ClusterSpec:
        """Wait until the server that Atelier runs for a cluster is ready; returns the settings with
        its present address. Raises Refused if it is off, or has failed."""
        while True:
            if spec.host:
                await self._hosts.host(spec.host).connected()
            server = await self._state(spec.host)
            if server is not None and (server.cluster != spec.name or server.state == "failed"):
                why = "has failed" if server.cluster == spec.name else "is off"
                raise Refused.of(
                    "cluster.off",
                    f"SkyRL's server of {spec.name} {why}.",
                    f"Start it in Settings → Clusters, or with `atelier clusters start "
                    f"{spec.name}`.",
                    where="backend.cluster",
                    detail=server.problem.message if server.problem else "",
                )
            if server is not None and server.state == "running":
                address = f"http://127.0.0.1:{server.port}"
                return spec.model_copy(update={"address": address})
            await asyncio.sleep(WAIT_S)

    # Keys and connection tests

    async def lend_key(self, name: str, key: str) -> None:
        """Keep the API key of a cluster in memory; an empty one removes it. Raises Refused for an
        unknown cluster, ConfigError for a key that cannot be part of an HTTP header."""
        await self._require(name)
        check_key(key)
        if key:
            self._keys[name] = key
        else:
            self._keys.pop(name, None)

    async def check(self, name: str) -> ClusterView:
        """Test the connection to a cluster in the list, and return the result. Raises Refused for
        an unknown cluster, ConfigError for an address that is not encrypted."""
        spec = await asyncio.to_thread(find_cluster, name)
        return await self.check_settings(CheckCluster(spec=spec))

    async def check_settings(self, request: CheckCluster) -> ClusterView:
        """Test the connection with these settings, which need not be in the list; an equal request
        joins a test that is running. Raises ConfigError for an address that is not encrypted, or a
        key that cannot be part of an HTTP header."""
        spec = request.spec
        require_encryption(spec)
        check_key(request.key)
        key = request.key or await self._key_for(spec)
        task = self._checking.get((spec, key))
        if task is None:
            task = asyncio.create_task(self._test(spec, key), name=f"check of cluster {spec.name}")
            self._checking[spec, key] = task
        await asyncio.wait([task])
        if task.cancelled():
            raise Refused.of(
                "engine.leaving", "This engine is being stopped.", "Try again in a moment."
            )
        tested = task.result()
        return ClusterView(
            spec=spec, has_key=bool(key), report=tested.report, problem=tested.problem
        )

    async def _test(self, spec: ClusterSpec, key: str) -> Tested:
        try:
            if spec.skyrl is not None:
                spec = await self._until_running(spec)
            access = ClusterAccess(spec, key, await self._socket(spec))
            tested = Tested(spec, key, await self._check(access), None)
        except AtelierError as error:
            tested = Tested(spec, key, None, error.problem)
        finally:
            del self._checking[spec, key]
        self._tested[spec.name] = tested
        return tested

    async def _key_for(self, spec: ClusterSpec) -> str:
        """Key lent for the cluster of this name; empty if that has another address."""
        listed = await self._find(spec.name)
        return self._keys.get(spec.name, "") if listed and listed.place == spec.place else ""

    def _view(self, spec: ClusterSpec, servers: Mapping[str, SkyrlServer | None]) -> ClusterView:
        """View of a cluster, with the newest test if it had these settings and this key, and the
        state of its server; `servers` by machine."""
        view = ClusterView(spec=spec, has_key=spec.name in self._keys)
        server = servers.get(spec.host) if spec.skyrl else None
        if server is not None:  # another one, or none, is running there
            off = SkyrlServer() if server.cluster != spec.name else server
            view = view.model_copy(update={"server": off})
        tested = self._tested.get(spec.name)
        if tested is None or (tested.spec, tested.key) != (spec, self._keys.get(spec.name, "")):
            return view
        return view.model_copy(update={"report": tested.report, "problem": tested.problem})

    async def _find(self, name: str) -> ClusterSpec | None:
        specs = await asyncio.to_thread(read_clusters)
        return next((spec for spec in specs if spec.name == name), None)

    async def _require(self, name: str) -> ClusterSpec:
        if spec := await self._find(name):
            return spec
        raise Refused.of(
            "cluster.unknown",
            f"There is no cluster called {name}.",
            "Add it in Settings → Clusters, or with `atelier clusters add`.",
        )

    async def _require_unused(self, name: str, then: str) -> None:
        """Wait for the cleanup of a run at this cluster that has ended. Raises Refused while one is
        active."""
        for active in list(self._active.values()):
            if active.run.config.backend.cluster != name or active.task.done():
                continue
            if has_ended(active.run):
                await asyncio.wait([active.task], timeout=CLOSING_S)
            if not active.task.done():
                raise Refused.of(
                    "cluster.in_use",
                    f"{active.run.spec.name} of {active.run.spec.project} is using {name}.",
                    f"Stop that run or wait for it, {then}.",
                )


def check_key(key: str) -> None:
    """Raise ConfigError for an API key that cannot be part of an HTTP header."""
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise ConfigError.of(
            "cluster.bad_key",
            "The API key contains a space or a character that API keys never have.",
            "Copy the key again, without spaces and line breaks.",
            where="key",
        )
