"""The MCP servers of mcp.json: connecting, what they offer, and calling it.

`mcp.json` is written as most programs write it: {"mcpServers": {NAME: {"command", "args", "env", "cwd"}}} for a
server that is started here, {"url", "headers"} for one that is reached over HTTP. Two more keys are ours: "tools" names
the tools that the model is offered (all, without it), "timeout_s" how long one call may take (30).
"""

import asyncio
import contextlib
import json
import sys
import tempfile
from pathlib import Path

from mcp import Client, MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client
from mcp_types import INVALID_PARAMS, METHOD_NOT_FOUND

TIMEOUT_S = 30
LOOK_S = 75
"""For one server to say all that it offers, however long its calls may take."""
LONGEST = 8000
"""Characters of a result that the model is shown."""


class ServerFailed(Exception):
    """A server did not do its part; what the model did wrong is not this."""


def read_servers(folder):
    """{NAME: {...}} of a project."""
    text = (Path(folder) / "mcp.json").read_text(encoding="utf-8")
    return json.loads(text)["mcpServers"]


class Tools:
    """Everything that the servers offer; use as an async context manager."""

    def __init__(self, folder, servers):
        self.folder, self.servers = Path(folder), servers
        self.known = {}
        self.stack = contextlib.AsyncExitStack()

    async def __aenter__(self):
        try:
            for name, server in self.servers.items():
                await self.connect(name, server)
        except BaseException:
            await self.stack.aclose()
            raise
        return self

    async def __aexit__(self, kind, error, trace):
        return await self.stack.__aexit__(kind, error, trace)

    @property
    def offered(self):
        """As chat completions take them."""
        return [
            {
                "type": "function",
                "function": {
                    "name": name,
                    "description": tool.description or "",
                    "parameters": tool.input_schema or {"type": "object", "properties": {}},
                },
            }
            for name, (_, _, tool) in self.known.items()
        ]

    async def connect(self, name, server):
        said = self.stack.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace"))
        try:
            client = await self.stack.enter_async_context(self.client(server, said))
            tools = await offered_by(client)
        except Exception as error:
            raise ServerFailed(f"The MCP server {name} cannot be used: {words(error)}{tail(said)}") from error
        chosen = server.get("tools")
        if chosen is not None and (unknown := set(chosen) - {tool.name for tool in tools}):
            raise ServerFailed(f"The MCP server {name} has no tool {sorted(unknown)[0]}.")
        for tool in tools:
            if chosen is None or tool.name in chosen:
                own = tool.name if tool.name not in self.known else f"{name}_{tool.name}"
                self.known[own] = (name, client, tool)

    def client(self, server, said):
        seconds = server.get("timeout_s", TIMEOUT_S)
        if "url" in server:
            http = create_mcp_http_client(headers=server.get("headers"))
            return Client(streamable_http_client(server["url"], http_client=http), read_timeout_seconds=seconds)
        started = StdioServerParameters(
            command=server["command"],
            args=server.get("args", []),
            env=server.get("env"),
            cwd=self.folder / server.get("cwd", "."),
        )
        return Client(stdio_client(started, errlog=said), read_timeout_seconds=seconds)

    async def call(self, name, arguments):
        """(text, whether it went well). Raises ServerFailed where the server did not do its part."""
        if name not in self.known:
            return f"There is no tool {name}.", False
        server, client, tool = self.known[name]
        try:
            values = json.loads(arguments or "{}")
        except ValueError:
            return "The arguments are no JSON.", False
        if not isinstance(values, dict):
            return "The arguments are no JSON object.", False
        try:
            result = await client.call_tool(tool.name, values)
        except MCPError as error:
            if error.code in (INVALID_PARAMS, METHOD_NOT_FOUND):
                return str(error.error.message), False
            raise ServerFailed(f"The MCP server {server} failed at {name}: {words(error)}") from error
        except Exception as error:
            raise ServerFailed(f"The MCP server {server} failed at {name}: {words(error)}") from error
        return "\n".join(map(text_of, result.content))[:LONGEST], not result.is_error


async def offered_by(client):
    """Its tools, page after page."""
    found, cursors = [], [None]
    while True:
        page = await client.list_tools(cursor=cursors[-1])
        found += page.tools
        if page.next_cursor is None:
            return found
        if page.next_cursor in cursors:
            raise ServerFailed("its list of tools has no end")
        cursors.append(page.next_cursor)


def text_of(part):
    """What the model is told of one part of a result."""
    text = getattr(part, "text", None)
    return f"[{part.type}]" if text is None else text


def first(error):
    """What went wrong, out of the groups that concurrent code wraps it in."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    return error


def words(error):
    error = first(error)
    if isinstance(error, MCPError):
        return error.error.message
    said = str(error).strip().splitlines()
    return f"{type(error).__name__}: {said[0]}" if said else type(error).__name__


def tail(said):
    """The end of what a server wrote to stderr."""
    said.seek(0)
    lines = said.read()[-2000:].strip().splitlines()
    return f" ({lines[-1].strip()[:300]})" if lines else ""


async def look(folder, name, server):
    """All that one server offers, chosen or not; what is wrong with it is said of it alone."""
    everything = {key: value for key, value in server.items() if key != "tools"}
    try:
        async with Tools(folder, {name: everything}) as tools:
            found = [tool for _, _, tool in tools.known.values()]
    except Exception as error:
        return {"tools": [], "wrong": words(error).removeprefix("ServerFailed: ")}
    kept = [(tool.name, tool.description or "", tool.input_schema or {}) for tool in found]
    keys = ("server", "name", "description", "parameters")
    return {"tools": [dict(zip(keys, (name, *tool), strict=True)) for tool in kept]}


async def look_at_all(folder):
    """What each offers; one that is not done in time keeps no other waiting."""
    servers = read_servers(folder)
    looks = {name: asyncio.create_task(look(folder, name, server)) for name, server in servers.items()}
    if looks:
        await asyncio.wait(looks.values(), timeout=LOOK_S)
    return {name: one.result() if one.done() else slow(name) for name, one in looks.items()}


def slow(name):
    return {"tools": [], "wrong": f"The MCP server {name} did not say what it offers within {LOOK_S} s"}


async def tell(folder):
    """One line of JSON; whoever has read it need not wait for those that are still busy."""
    print(json.dumps(await look_at_all(folder)), flush=True)


if __name__ == "__main__":  # python servers.py FOLDER: what they offer
    asyncio.run(tell(sys.argv[1]))
