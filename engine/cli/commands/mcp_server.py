"""`mcp-server`: let a coding agent read projects and runs over MCP (stdin and stdout), and start
runs within the limits of the options."""

import argparse
import asyncio

from engine.cli.engine_connection import engine_for
from engine.integrations.mcp_server.limits import Limits


def run(arguments: argparse.Namespace) -> int:
    limits = Limits(arguments.runs, arguments.steps, arguments.usd, arguments.edit)
    asyncio.run(_serve(arguments.workspace, limits))
    return 0


async def _serve(workspace: str | None, limits: Limits) -> None:
    from engine.integrations.mcp_server.server import Tools  # imports the SDK: half a second

    async with engine_for(workspace) as client:
        await Tools(client, limits).server().run_stdio_async()
