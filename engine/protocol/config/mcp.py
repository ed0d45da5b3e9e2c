"""MCP servers on the wire."""

from typing import Annotated, Any

from pydantic import Field, model_validator

from engine.protocol.base import Request, Value
from engine.protocol.problems import Problem
from engine.protocol.requests.drafts import ToolView


class McpServer(Value):
    """How a server is reached: started here (`command`), or over streamable HTTP (`url`)."""

    command: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = Field(default_factory=dict)
    cwd: str = "."
    """Where it is started, relative to the project."""
    url: str = ""
    headers: dict[str, str] = Field(default_factory=dict)
    tools: tuple[str, ...] | None = None
    """Those that the model is offered; None offers all."""
    timeout_s: Annotated[float, Field(gt=0, le=3600)] = 30
    """Seconds that one call may take."""

    @model_validator(mode="after")
    def _one_way(self) -> "McpServer":
        if bool(self.command) == bool(self.url):
            raise ValueError("needs either a command or a url")
        if self.url and not self.url.startswith(("http://", "https://")):
            raise ValueError("has a url that is neither http:// nor https://")
        return self

    @property
    def address(self) -> str:
        """For a person."""
        return self.url or " ".join([self.command, *self.args])


class ServerView(Value):
    """A server, and what it said when it was looked at."""

    name: str
    server: McpServer
    tools: list[ToolView] = Field(default_factory=list)
    """All that it has, chosen or not; none before it was looked at."""
    looked: bool = False
    problem: Problem | None = None
    """Why it cannot be used."""

    @property
    def offered(self) -> list[ToolView]:
        """The chosen ones."""
        chosen = self.server.tools
        return [tool for tool in self.tools if chosen is None or tool.name in chosen]


class ServerViews(Value):
    servers: list[ServerView] = Field(default_factory=list)
    read: bool = False
    """Whether there is an mcp.json, or an agent of ours that reads one."""


class SetServer(Request):
    """Write a server into mcp.json, or take it out (None)."""

    name: str = Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_-]+$")
    server: dict[str, Any] | None = None
    """As mcp.json has it."""
