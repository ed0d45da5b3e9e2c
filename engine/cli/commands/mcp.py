"""`mcp list|tools|add|choose|remove PROJECT …`: the MCP servers of a project. No engine needed."""

import argparse
import asyncio
import json
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from engine.cli.terminal import complain, say, say_json, table
from engine.integrations.mcp_servers import discover_tools, read_servers, set_server
from engine.protocol.config.mcp import ServerView, ServerViews, SetServer
from engine.protocol.problems import ConfigError, Refused


def run(arguments: argparse.Namespace) -> int:
    project = Path(arguments.project).expanduser().resolve()
    return ACTIONS[arguments.action](project, arguments)


def _list(project: Path, arguments: argparse.Namespace) -> int:
    servers = read_servers(project)
    if arguments.json:
        say(json.dumps({name: server.model_dump() for name, server in servers.items()}))
    elif servers:
        rows = [
            (name, one.address, "all" if one.tools is None else ", ".join(one.tools) or "none")
            for name, one in servers.items()
        ]
        say(table(("name", "command or address", "tools"), rows))
    else:
        say("No MCP servers. Add one: atelier mcp add PROJECT NAME -- COMMAND …")
    return 0


def _tools(project: Path, arguments: argparse.Namespace) -> int:
    """List tools of all servers; returns 1 if a server has a problem."""
    views = asyncio.run(discover_tools(project))
    if arguments.json:
        say_json(views)
    else:
        _tell(views)
    return 1 if any(view.problem for view in views.servers) else 0


def _tell(views: ServerViews) -> None:
    for view in views.servers:
        if view.problem:
            complain(view.problem)
            continue
        say(f"{view.name}: {view.server.address}")
        for tool in view.tools:
            offered = view.server.tools is None or tool.name in view.server.tools
            words = " ".join(tool.description.split())
            say(f"  {'x' if offered else ' '} {tool.name:24} {words[:70]}")


def _add(project: Path, arguments: argparse.Namespace) -> int:
    words = arguments.words[1:] if arguments.words[:1] == ["--"] else arguments.words
    values: dict[str, Any] = {"url": arguments.url} if arguments.url else {}
    if words:
        values |= {"command": words[0], "args": words[1:]}
    set_server(project, _request(arguments.name, values))
    say(f"{arguments.name} was added to mcp.json. List its tools: atelier mcp tools {project}")
    return 0


def _choose(project: Path, arguments: argparse.Namespace) -> int:
    """Let the model call only the named tools of a server (no names: all). Raises Refused for an
    unknown server or tool."""
    servers = read_servers(project)
    if arguments.name not in servers:
        raise Refused.of("mcp.unknown", f"There is no MCP server {arguments.name}.")
    if arguments.words:
        views = asyncio.run(discover_tools(project, arguments.name)).servers
        _refuse_unknown(next(v for v in views if v.name == arguments.name), arguments.words)
    values = servers[arguments.name].model_dump(exclude_defaults=True, mode="json")
    values["tools"] = arguments.words or None
    set_server(project, _request(arguments.name, values))
    return 0


def _refuse_unknown(view: ServerView, names: Sequence[str]) -> None:
    """Raises Refused if the server is unusable or lacks one of these tools."""
    known = [tool.name for tool in view.tools]
    if view.problem and not known:
        raise Refused(view.problem)
    if unknown := [name for name in names if name not in known]:
        near = get_close_matches(unknown[0], known, 1)
        raise Refused.of(
            "mcp.no_tool",
            f"{view.name} has no tool {unknown[0]}.",
            f"Did you mean {near[0]}?" if near else f"Its tools: {', '.join(known) or 'none'}.",
        )


def _remove(project: Path, arguments: argparse.Namespace) -> int:
    set_server(project, SetServer(name=arguments.name))
    return 0


def _request(name: str, values: dict[str, Any]) -> SetServer:
    try:
        return SetServer(name=name, server={k: v for k, v in values.items() if v is not None})
    except ValueError as error:
        raise ConfigError.of(
            "mcp.bad_name",
            f"{name} cannot be the name of an MCP server.",
            "Use letters, digits, - and _.",
        ) from error


ACTIONS = {"list": _list, "tools": _tools, "add": _add, "choose": _choose, "remove": _remove}
