"""Routes of a project's MCP servers: as mcp.json has them, changed, and looked at."""

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from engine.integrations.mcp.discovery import discover_tools
from engine.integrations.mcp.servers import set_server, views_of
from engine.protocol.config.mcp import SetServer
from engine.server.bodies import Routes, body_of, json_of, project_of
from engine.server.composition import Services


class McpRoutes:
    def __init__(self, services: Services) -> None:
        """MCP servers are read from the project alone: no service is needed."""

    def routes(self) -> Routes:
        return [
            ("GET", "/project/servers", self.view),
            ("PUT", "/project/servers", self.change),
            ("POST", "/project/servers", self.look),
        ]

    async def view(self, request: Request) -> Response:
        """MCP servers as mcp.json names them; no server is contacted."""
        return json_of(await asyncio.to_thread(views_of, project_of(request)))

    async def change(self, request: Request) -> Response:
        asked = await body_of(request, SetServer)
        await asyncio.to_thread(set_server, project_of(request), asked)
        return await self.view(request)

    async def look(self, request: Request) -> Response:
        """Each is started, or called, and asked for its tools."""
        return json_of(await discover_tools(project_of(request)))
