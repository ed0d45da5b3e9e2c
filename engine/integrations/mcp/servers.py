"""`mcp.json` ↔ typed objects. The file belongs to the user: keys that mean nothing here stay."""

import json
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from engine.protocol.config.mcp import McpServer, ServerView, ServerViews, SetServer
from engine.protocol.json_text import parse_json
from engine.protocol.problems import ConfigError
from engine.runtime.files import replace_file
from engine.trust.files import MOST_TEXT_BYTES, project_file, read_regular

FILE = "mcp.json"
SERVERS = "mcpServers"
READER = "servers.py"
"""The part of our agent that reads it."""


def read_servers(project: Path) -> dict[str, McpServer]:
    """By name, in the order of the file; none where there is no file. Raises ConfigError for what
    is no mcp.json."""
    return {name: _server(name, values) for name, values in _read(project)[SERVERS].items()}


def views_of(project: Path) -> ServerViews:
    """As the file has them; nobody is asked. Raises ConfigError as `read_servers`."""
    servers = read_servers(project)
    views = [ServerView(name=name, server=server) for name, server in servers.items()]
    return ServerViews(
        servers=views, read=any((project / name).is_file() for name in (FILE, READER))
    )


def set_server(project: Path, asked: SetServer) -> None:
    """Raises ConfigError for what is no server; then the file is as it was."""
    data = _read(project)
    if asked.server is None:
        data[SERVERS].pop(asked.name, None)
    else:
        _server(asked.name, asked.server)
        before = data[SERVERS].get(asked.name) or {}
        foreign = {key: before[key] for key in before if key not in McpServer.model_fields}
        data[SERVERS][asked.name] = foreign | asked.server
    replace_file(project / FILE, json.dumps(data, indent=2, ensure_ascii=False) + "\n")


def check_file(file: Path) -> dict[str, McpServer]:
    """The servers of a file that somebody names. Raises ConfigError where it has none."""
    found = {name: _server(name, values) for name, values in _parse(file)[SERVERS].items()}
    if not found:
        raise ConfigError.of("mcp.none", "There is no server in it.", where=str(file))
    return found


def _read(project: Path) -> dict[str, Any]:
    file = project_file(project, FILE, FILE)
    return _parse(file) if file.exists() else {SERVERS: {}}


def _parse(file: Path) -> dict[str, Any]:
    try:
        data = parse_json(read_regular(file, MOST_TEXT_BYTES), unique=False)
    except json.JSONDecodeError as error:
        raise ConfigError.of(
            "mcp.no_json",
            f"{file.name} is no JSON: {error.msg}.",
            "Fix it, or remove servers and add them again.",
            where=f"{file}, line {error.lineno}",
        ) from error
    except (OSError, ValueError) as error:
        raise ConfigError.of(
            "mcp.unreadable", f"{file.name} cannot be read: {error}.", where=str(file)
        ) from error
    if not isinstance(data, dict) or not isinstance(data.get(SERVERS), dict):
        raise ConfigError.of(
            "mcp.no_servers",
            f'{file.name} has no object "{SERVERS}".',
            f'Write {{"{SERVERS}": {{"NAME": {{"command": "…", "args": ["…"]}}}}}}.',
            where=str(file),
        )
    return data


def _server(name: str, values: Any) -> McpServer:
    try:
        return McpServer.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        said = first["msg"].removeprefix("Value error, ")
        raise ConfigError.of(
            "mcp.bad_server",
            f"The MCP server {name}{f', {place}' if place else ''}: {said}.",
            "Name a command with its args, or a url.",
            where=FILE,
        ) from error
