"""Calls about a project's MCP servers."""

from engine.client.transport import Transport
from engine.protocol.config.mcp import ServerViews, SetServer

LOOK_S = 120.0


class McpCalls(Transport):
    """Calls about MCP servers: mcp.json, and the tools of the servers."""

    async def servers(self, project: str) -> ServerViews:
        """As mcp.json has them."""
        return await self._ask("GET", "/project/servers", ServerViews, params={"path": project})

    async def set_server(self, project: str, request: SetServer) -> ServerViews:
        """Raises ConfigError for what is no server."""
        params = {"path": project}
        return await self._ask("PUT", "/project/servers", ServerViews, request, params)

    async def look_at_servers(self, project: str) -> ServerViews:
        """Ask each for its tools. Raises Refused where the agent's packages are not installed."""
        params = {"path": project}
        return await self._ask(
            "POST", "/project/servers", ServerViews, params=params, timeout=LOOK_S
        )
