"""Rows of MCP servers, and their entries in mcp.json. Free of I/O."""

import shlex
from collections.abc import Collection, Sequence
from typing import Any

from engine.protocol.config.mcp import McpServer, ServerView, ServerViews
from engine.protocol.requests.drafts import ToolView
from studio.text import formatting

NONE = "No MCP servers yet. Add a server to give the agent tools."


def chip_of(view: ServerView) -> tuple[str, str, str]:
    """Return text, colour and icon of the status chip of an MCP server."""
    if view.problem is not None:
        return "problem", "bad", "octagon-alert"
    if not view.is_listed:
        return "not checked", "neutral", "circle-dashed"
    offered, has = len(view.offered), formatting.plural(len(view.tools), "tool")
    if offered == len(view.tools):
        return has, "good", "check"
    return f"{offered} of {has}", "good" if offered else "warn", "check" if offered else ""


def problem_words(view: ServerView) -> str:
    """Return problem and hint of a server; empty without a problem."""
    return f"{view.problem.message} {view.problem.hint}".strip() if view.problem else ""


def offered(views: ServerViews) -> list[ToolView]:
    """Return the tools that all checked servers offer to the agent."""
    return [tool for view in views.servers for tool in view.offered]


def not_ready(views: ServerViews) -> str:
    """Return why scenarios cannot be generated from the tools of these servers; empty if they
    can."""
    if not views.servers:
        return "Add a server, or select an mcp.json."
    for view in views.servers:
        if view.problem is not None:
            return f"The server {view.name} cannot be used. Fix or remove the server."
        if not view.is_listed:
            return "Check the servers first: scenarios are generated for their tools."
    return "" if offered(views) else "Select at least one tool."


def kept_looks(now: ServerViews, before: ServerViews) -> ServerViews:
    """Return `now`, where servers that are not checked yet keep tools and problem from `before` if
    their entries are the same apart from the selected tools."""
    views = {view.name: view for view in before.servers}

    def merged(view: ServerView) -> ServerView:
        old = views.get(view.name)
        if view.is_listed or old is None or _way(old.server) != _way(view.server):
            return view
        return old.model_copy(update={"server": view.server})

    return now.model_copy(update={"servers": [merged(view) for view in now.servers]})


def chosen_values(view: ServerView, name: str, on: bool) -> dict[str, Any]:
    """Return the mcp.json entry of a server with the tool `name` switched on or off; without a
    tool list if all are selected."""
    names = {tool.name for tool in view.offered}
    names = names | {name} if on else names - {name}
    values = values_of(view.server)
    values.pop("tools", None)
    if len(names) < len(view.tools):
        values["tools"] = _ordered(view.tools, names)
    return values


def values_of(server: McpServer) -> dict[str, Any]:
    """Return the entry of a server in the format of mcp.json."""
    return server.model_dump(mode="json", exclude_defaults=True)


def entered_values(command: str, url: str, timeout_s: float) -> dict[str, Any]:
    """Return the mcp.json entry for the typed URL or, without one, command line. Raises ValueError
    for an unclosed quote."""
    values: dict[str, Any] = {"timeout_s": timeout_s}
    if url.strip():
        return values | {"url": url.strip()}
    words = shlex.split(command)
    return values | {"command": words[0] if words else "", "args": words[1:]}


def _ordered(tools: Sequence[ToolView], names: Collection[str]) -> list[str]:
    return [tool.name for tool in tools if tool.name in names]


def _way(server: McpServer) -> McpServer:
    return server.model_copy(update={"tools": None})
