"""Calls about clusters."""

from pydantic import TypeAdapter

from engine.client.transport import Transport, parse
from engine.protocol.requests.clusters import (
    ClusterList,
    ClusterSpec,
    ClusterView,
    DiscardSaved,
    LaunchCommands,
    LaunchRequest,
    SkyrlServer,
    StartCluster,
    StartSkyrl,
)

CHECK_S = 900.0
"""Timeout in seconds of a connection test, the first of which may install the SDK."""


class ClusterCalls(Transport):
    """Calls about the list of clusters, their API keys and connection tests."""

    async def clusters(self) -> ClusterList:
        return await self._ask("GET", "/clusters", ClusterList)

    async def put_cluster(self, spec: ClusterSpec) -> ClusterList:
        """Add a cluster, or change the one of the same name. Raises Refused for an address that is
        not encrypted, or while an active run uses the cluster."""
        return await self._ask("PUT", "/clusters", ClusterList, body=spec)

    async def remove_cluster(self, name: str) -> ClusterList:
        """Remove a cluster from the list. Raises Refused if it is unknown or an active run uses
        it."""
        return await self._ask("DELETE", f"/clusters/{name}", ClusterList)

    async def check_cluster(self, name: str) -> ClusterView:
        """Test the connection to a cluster. A failed test is part of the answer (`problem`)."""
        path = f"/clusters/{name}/check"
        return await self._ask("POST", path, ClusterView, timeout=CHECK_S)

    async def check_cluster_settings(self, spec: ClusterSpec, key: str) -> ClusterView:
        """Test the connection with settings that need not be in the list. An empty key uses the one
        that was lent for this cluster and address."""
        body = {"spec": spec.model_dump(mode="json"), "key": key}
        response = await self._send("POST", "/clusters/check", json=body, timeout=CHECK_S)
        return parse(response, TypeAdapter(ClusterView))

    async def lend_cluster_key(self, name: str, key: str) -> None:
        """Send a cluster's API key to the engine, which keeps it in memory only; empty removes
        it."""
        await self._send("PUT", f"/clusters/{name}/key", json={"key": key})

    async def start_cluster(self, name: str, request: StartCluster) -> ClusterView:
        """Start SkyRL's server as a cluster on this machine or a server, and add the cluster to the
        list. Returns as soon as the start has begun; uploads the model first if the server lacks
        it. Raises Refused, ConfigError, LaunchError."""
        return await self._ask(
            "POST", f"/clusters/{name}/start", ClusterView, body=request, timeout=None
        )

    async def stop_cluster(self, name: str) -> ClusterView:
        """End SkyRL's server of a cluster; its state is kept. Raises Refused while an active run
        uses it, or if Atelier did not start it."""
        return await self._ask("POST", f"/clusters/{name}/stop", ClusterView)

    async def launch_commands(self, request: LaunchRequest) -> LaunchCommands:
        """Commands that start SkyRL by hand, on one or several nodes."""
        return await self._ask("POST", "/clusters/commands", LaunchCommands, body=request)

    async def skyrl(self) -> SkyrlServer:
        """State of SkyRL's server on the machine of this engine."""
        return await self._ask("GET", "/skyrl", SkyrlServer)

    async def start_skyrl(self, request: StartSkyrl) -> SkyrlServer:
        """Start SkyRL's server on the machine of this engine. Raises Refused while it runs as
        another cluster or with other settings, ModelError if the model is not there."""
        return await self._ask("POST", "/skyrl", SkyrlServer, body=request)

    async def discard_saved(self, request: DiscardSaved) -> None:
        """Delete a snapshot or saved state of the server on the machine of this engine; no effect
        if there is none."""
        await self._send("POST", "/skyrl/discard", json=request.model_dump())

    async def stop_skyrl(self) -> SkyrlServer:
        """End SkyRL's server on the machine of this engine; no effect if it is off."""
        return await self._ask("DELETE", "/skyrl", SkyrlServer)
