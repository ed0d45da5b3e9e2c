"""MCP servers of a project: `mcp.json` ↔ typed objects, and the tools that its servers offer.

The file belongs to the user: unknown keys are kept.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from engine.environments.agent_packages import packages_python
from engine.environments.bootstrap import life
from engine.protocol.config.mcp import McpServer, ServerView, ServerViews, SetServer
from engine.protocol.json_text import parse_json
from engine.protocol.problems import ConfigError, Problem, Refused
from engine.protocol.requests.drafts import ToolView
from engine.runtime.child import descendants, end_processes
from engine.runtime.files import replace_file
from engine.runtime.paths import LIFE_PIPE, RESOURCES
from engine.runtime.variables import allowed_environment
from engine.storage.project import load_config
from engine.trust.files import MOST_TEXT_BYTES, project_file, read_regular
from engine.trust.projects import require_trust

FILE = "mcp.json"
SERVERS = "mcpServers"
READER = "servers.py"
"""Name of the agent's module that reads mcp.json; a project with this file uses MCP servers."""


def read_servers(project: Path) -> dict[str, McpServer]:
    """Return the servers in mcp.json by name, in order; empty without the file. Raises ConfigError
    if it is invalid."""
    return {name: _server(name, values) for name, values in _read(project)[SERVERS].items()}


def views_of(project: Path) -> ServerViews:
    """Return the MCP servers of a project's mcp.json without contacting them. Raises ConfigError if
    the file is invalid."""
    servers = read_servers(project)
    views = [ServerView(name=name, server=server) for name, server in servers.items()]
    return ServerViews(
        servers=views, read=any((project / name).is_file() for name in (FILE, READER))
    )


def set_server(project: Path, request: SetServer) -> None:
    """Add or replace the server `request.name` in mcp.json, or remove it if `request.server` is
    None. Raises ConfigError if it is invalid, before writing."""
    data = _read(project)
    if request.server is None:
        data[SERVERS].pop(request.name, None)
    else:
        _server(request.name, request.server)
        before = data[SERVERS].get(request.name) or {}
        foreign = {key: before[key] for key in before if key not in McpServer.model_fields}
        data[SERVERS][request.name] = foreign | request.server
    replace_file(project / FILE, json.dumps(data, indent=2, ensure_ascii=False) + "\n")


def check_file(file: Path) -> dict[str, McpServer]:
    """Servers by name in a file of mcp.json's format. Raises ConfigError if it has none."""
    found = {name: _server(name, values) for name, values in _parse(file)[SERVERS].items()}
    if not found:
        raise ConfigError.of("mcp.none", "The file has no MCP servers.", where=str(file))
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
            f"{file.name} is not valid JSON: {error.msg}.",
            "Fix the file, or remove its MCP servers and add them again.",
            where=f"{file}, line {error.lineno}",
        ) from error
    except (OSError, ValueError) as error:
        raise ConfigError.of(
            "mcp.unreadable", f"{file.name} cannot be read: {error}.", where=str(file)
        ) from error
    if not isinstance(data, dict) or not isinstance(data.get(SERVERS), dict):
        raise ConfigError.of(
            "mcp.no_servers",
            f'{file.name} has no "{SERVERS}" object.',
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
        message = first["msg"].removeprefix("Value error, ")
        raise ConfigError.of(
            "mcp.bad_server",
            f"The MCP server {name} is invalid{f' at {place}' if place else ''}: {message}.",
            "Set a command with args, or a url.",
            where=FILE,
        ) from error


LOOK = RESOURCES / "agents" / "tools" / "servers.py"
LIMIT_S = 90.0
"""Time limit of the discovery process; each server has a shorter limit of its own."""
LINE_LIMIT = 2**24


async def discover_tools(project: Path, name: str = "") -> ServerViews:
    """Return each configured server (or only `name`, if not empty) with its tools, or with its
    problem. Tools that mcp.json selects but the server lacks are a problem too. Raises ConfigError
    if mcp.json is invalid or the agent's packages are missing. Raises Refused if the project is not
    trusted, because this runs its commands."""
    await asyncio.to_thread(require_trust, project)
    servers = await asyncio.to_thread(read_servers, project)
    agent = (await asyncio.to_thread(load_config, project)).agent
    python = agent.python or await packages_python(project, agent) or sys.executable
    found = await _run(project, python) if servers else {}
    return ServerViews(
        read=True,
        servers=[
            ServerView(
                name=key,
                server=server,
                tools=(tools := [ToolView.model_validate(tool) for tool in found[key]["tools"]]),
                is_listed=True,
                problem=_problem(str(found[key].get("wrong", ""))) or _missing(key, server, tools),
            )
            for key, server in servers.items()
            if name in ("", key)
        ],
    )


def _missing(name: str, server: McpServer, tools: Sequence[ToolView]) -> Problem | None:
    """Return the problem that mcp.json selects a tool that the server does not have."""
    known = {tool.name for tool in tools}
    missing = [tool for tool in server.tools or () if tool not in known]
    if not missing:
        return None
    return Problem(
        code="mcp.no_tool",
        message=f"The MCP server {name} has no tool {missing[0]}, which mcp.json selects.",
        hint=f"Available tools: {', '.join(sorted(known)) or 'none'}.",
    )


async def _run(project: Path, python: str) -> dict[str, dict[str, list[object]]]:
    path = os.pathsep.join([str(Path(python).parent), os.environ.get("PATH", os.defpath)])
    with tempfile.TemporaryFile() as errors, life() as descriptor:
        process = await asyncio.create_subprocess_exec(
            *(python, str(LIFE_PIPE), str(descriptor), python, str(LOOK), str(project)),
            pass_fds=[descriptor],
            cwd=project,
            env=allowed_environment({"PATH": path, "PYTHONDONTWRITEBYTECODE": "1"}),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
            limit=LINE_LIMIT,
        )
        assert process.stdout is not None
        try:
            line = await asyncio.wait_for(process.stdout.readline(), LIMIT_S)
        except TimeoutError:
            raise Refused.of(
                "mcp.slow",
                f"The MCP servers did not list their tools within {LIMIT_S:g} s.",
                "Start each server in a terminal to see why.",
            ) from None
        finally:
            await _end(process)
        if line:
            looks: dict[str, dict[str, list[object]]] = json.loads(line)
            return looks
        errors.seek(0)
        stderr = errors.read().decode(errors="replace")
    lines = stderr.strip().splitlines() or [f"exit {process.returncode}"]
    raise Refused.of(
        "mcp.not_looked",
        f"The MCP servers cannot be queried: {lines[-1]}",
        "Check that the agent's environment has the package mcp (agent.requirements).",
        detail=stderr[-4000:],
    )


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill the process and all servers it started, each of which has its own session."""
    family = descendants(process.pid)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await asyncio.to_thread(end_processes, family)
    await process.wait()


def _problem(wrong: str) -> Problem | None:
    if not wrong:
        return None
    return Problem(
        code="mcp.unusable",
        message=wrong if wrong.endswith(".") else f"{wrong}.",
        hint="Check the server's command or URL; start the server in a terminal to see its output.",
    )
