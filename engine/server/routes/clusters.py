"""Routes of clusters: the list, their API keys, connection tests, and SkyRL's server."""

from starlette.requests import Request
from starlette.responses import Response

from engine.integrations.skyrl.commands import launch_commands
from engine.protocol.requests.clusters import (
    CheckCluster,
    ClusterSpec,
    DiscardSaved,
    LaunchCommands,
    LaunchRequest,
    LendClusterKey,
    StartCluster,
    StartSkyrl,
)
from engine.server.bodies import Routes, body_of, json_of
from engine.server.composition import Services


class ClusterRoutes:
    def __init__(self, services: Services) -> None:
        self._clusters, self._skyrl = services.clusters, services.skyrl

    def routes(self) -> Routes:
        return [
            ("GET", "/clusters", self.clusters),
            ("PUT", "/clusters", self.put),
            ("DELETE", "/clusters/{name}", self.remove),
            ("POST", "/clusters/check", self.check_settings),
            ("POST", "/clusters/{name}/check", self.check),
            ("PUT", "/clusters/{name}/key", self.lend_key),
            ("POST", "/clusters/commands", self.commands),
            ("POST", "/clusters/{name}/start", self.start),
            ("POST", "/clusters/{name}/stop", self.stop),
            ("GET", "/skyrl", self.skyrl),
            ("POST", "/skyrl", self.start_skyrl),
            ("DELETE", "/skyrl", self.stop_skyrl),
            ("POST", "/skyrl/discard", self.discard),
        ]

    async def clusters(self, request: Request) -> Response:
        return json_of(await self._clusters.listed())

    async def put(self, request: Request) -> Response:
        """Add the cluster in the body, or change the one of the same name."""
        await self._clusters.put(await body_of(request, ClusterSpec))
        return json_of(await self._clusters.listed())

    async def remove(self, request: Request) -> Response:
        await self._clusters.remove(request.path_params["name"])
        return json_of(await self._clusters.listed())

    async def check(self, request: Request) -> Response:
        """Test the connection; the first test may install the SDK."""
        return json_of(await self._clusters.check(request.path_params["name"]))

    async def check_settings(self, request: Request) -> Response:
        """Test the connection with the settings and the key in the body."""
        return json_of(await self._clusters.check_settings(await body_of(request, CheckCluster)))

    async def lend_key(self, request: Request) -> Response:
        body = await body_of(request, LendClusterKey)
        await self._clusters.lend_key(request.path_params["name"], body.key)
        return Response(status_code=204)

    async def start(self, request: Request) -> Response:
        """Begin to start SkyRL's server as this cluster; its state tells when it is ready."""
        body = await body_of(request, StartCluster)
        return json_of(await self._clusters.start(request.path_params["name"], body))

    async def stop(self, request: Request) -> Response:
        return json_of(await self._clusters.stop(request.path_params["name"]))

    async def commands(self, request: Request) -> Response:
        """Commands that start SkyRL by hand on one or several nodes."""
        body = await body_of(request, LaunchRequest)
        return json_of(LaunchCommands(commands=launch_commands(body)))

    # SkyRL's server on the machine of this engine

    async def skyrl(self, request: Request) -> Response:
        return json_of(self._skyrl.view)

    async def start_skyrl(self, request: Request) -> Response:
        """Begin to start the server; its state tells when it is ready."""
        return json_of(await self._skyrl.start(await body_of(request, StartSkyrl)))

    async def discard(self, request: Request) -> Response:
        """Delete a snapshot or saved state of the server."""
        await self._skyrl.discard(await body_of(request, DiscardSaved))
        return Response(status_code=204)

    async def stop_skyrl(self, request: Request) -> Response:
        return json_of(await self._skyrl.stop())
