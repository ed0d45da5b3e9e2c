"""What a row of the MCP servers says, and what is written into mcp.json. Pure."""

import shlex
from collections.abc import Collection, Sequence
from typing import Any

from engine.protocol.config.mcp import McpServer, ServerView, ServerViews
from engine.protocol.requests.drafts import ToolView
from studio.text import formatting

NONE = "None yet. Add one: its tools are what the agent can call."


def chip_of(view: ServerView) -> tuple[str, str, str]:
    """Words, tone, icon."""
    if view.problem is not None:
        return "problem", "bad", "octagon-alert"
    if not view.looked:
        return "not looked at", "neutral", "circle-dashed"
    offered, has = len(view.offered), formatting.plural(len(view.tools), "tool")
    if offered == len(view.tools):
        return has, "good", "check"
    return f"{offered} of {has}", "good" if offered else "warn", "check" if offered else ""


def problem_words(view: ServerView) -> str:
    return f"{view.problem.message} {view.problem.hint}".strip() if view.problem else ""


def offered(views: ServerViews) -> list[ToolView]:
    """What an agent can call, of all servers that were looked at."""
    return [tool for view in views.servers for tool in view.offered]


def not_ready(views: ServerViews) -> str:
    """Why nothing can be written for these tools yet; empty where it can."""
    if not views.servers:
        return "Add a server, or choose an mcp.json."
    for view in views.servers:
        if view.problem is not None:
            return f"{view.name} cannot be used: mend it, or remove it."
        if not view.looked:
            return "Look at the servers first: tasks are written for their tools."
    return "" if offered(views) else "Choose at least one tool."


def kept_looks(now: ServerViews, before: ServerViews) -> ServerViews:
    """What a server said stays known while it is reached the same way."""
    known = {view.name: view for view in before.servers}

    def merged(view: ServerView) -> ServerView:
        old = known.get(view.name)
        if view.looked or old is None or _way(old.server) != _way(view.server):
            return view
        return old.model_copy(update={"server": view.server})

    return now.model_copy(update={"servers": [merged(view) for view in now.servers]})


def chosen_values(view: ServerView, name: str, on: bool) -> dict[str, Any]:
    """The server for mcp.json with one tool more, or less; all of them are no choice."""
    names = {tool.name for tool in view.offered}
    names = names | {name} if on else names - {name}
    values = values_of(view.server)
    values.pop("tools", None)
    if len(names) < len(view.tools):
        values["tools"] = _ordered(view.tools, names)
    return values


def values_of(server: McpServer) -> dict[str, Any]:
    """As mcp.json has it."""
    return server.model_dump(mode="json", exclude_defaults=True)


def entered_values(command: str, url: str, timeout_s: float) -> dict[str, Any]:
    """Of what a person typed: one line of a shell, or a URL. Raises ValueError for a quote that
    does not end."""
    values: dict[str, Any] = {"timeout_s": timeout_s}
    if url.strip():
        return values | {"url": url.strip()}
    words = shlex.split(command)
    return values | {"command": words[0] if words else "", "args": words[1:]}


def _ordered(tools: Sequence[ToolView], names: Collection[str]) -> list[str]:
    return [tool.name for tool in tools if tool.name in names]


def _way(server: McpServer) -> McpServer:
    return server.model_copy(update={"tools": None})
