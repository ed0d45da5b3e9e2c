"""MCP server configuration and tool lists exchanged between engine and studio."""

from typing import Annotated, Any

from pydantic import Field, model_validator

from engine.protocol.base import Request, Value
from engine.protocol.problems import Problem
from engine.protocol.requests.drafts import ToolView


class McpServer(Value):
    """MCP server, either a local process (`command`) or reached over streamable HTTP (`url`)."""

    command: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = Field(default_factory=dict)
    cwd: str = "."
    """Working directory of the command, relative to the project."""
    url: str = ""
    headers: dict[str, str] = Field(default_factory=dict)
    tools: tuple[str, ...] | None = None
    """Names of the tools offered to the model; None offers all."""
    timeout_s: Annotated[float, Field(gt=0, le=3600)] = 30
    """Timeout of one tool call, in seconds."""

    @model_validator(mode="after")
    def _check_transport(self) -> "McpServer":
        if bool(self.command) == bool(self.url):
            raise ValueError("needs either a command or a url")
        if self.url and not self.url.startswith(("http://", "https://")):
            raise ValueError("has a url that is neither http:// nor https://")
        return self

    @property
    def address(self) -> str:
        """Command line or URL, for display."""
        return self.url or " ".join([self.command, *self.args])


class ServerView(Value):
    """MCP server with the tools found by the last check."""

    name: str
    server: McpServer
    tools: list[ToolView] = Field(default_factory=list)
    """All tools of the server, selected or not; empty before the first check."""
    is_listed: bool = False
    problem: Problem | None = None
    """Why the server cannot be used."""

    @property
    def offered(self) -> list[ToolView]:
        """Tools that are offered to the model."""
        chosen = self.server.tools
        return [tool for tool in self.tools if chosen is None or tool.name in chosen]


class ServerViews(Value):
    servers: list[ServerView] = Field(default_factory=list)
    read: bool = False
    """Whether there is an mcp.json, or a sample agent that reads one."""


class SetServer(Request):
    """Add a server to mcp.json, replace it, or remove it (None)."""

    name: str = Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_-]+$")
    server: dict[str, Any] | None = None
    """Server entry in the format of mcp.json."""
