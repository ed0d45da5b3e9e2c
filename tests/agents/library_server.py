"""MCP server over stdio with tools that work, fail, exit and never respond."""

import os
import sys
import time

from mcp.server import MCPServer

server = MCPServer("library")


@server.tool()
def find_book(title: str) -> str:
    """The shelf on which a book stands."""
    print("looking for", title, file=sys.stderr)
    return f"{title} stands on shelf 7"


@server.tool()
def lend_book(title: str, days: int) -> str:
    """Lend a book for some days."""
    if days > 30:
        raise ValueError("at most 30 days")
    return f"{title} is yours for {days} days"


@server.tool()
def break_down() -> str:
    """Ends the server."""
    os._exit(3)


@server.tool()
def wait_for_ever() -> str:
    """Never answers."""
    time.sleep(600)
    return "late"


if __name__ == "__main__":
    server.run()
