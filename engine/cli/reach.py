"""The engine that works on a run, where one does."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from engine.client import EngineClient
from engine.launch.local import default_workspace, find
from engine.protocol.problems import Refused
from engine.run import is_locked


@asynccontextmanager
async def engine_of(folder: Path, workspace: str | None) -> AsyncIterator[EngineClient | None]:
    """Of this run folder; None while nobody has it open. Raises Refused where it cannot be
    found."""
    if not await asyncio.to_thread(is_locked, folder):
        yield None
        return
    known = Path(workspace) if workspace else default_workspace()
    endpoint = await find(known) or await find(folder.parents[2])
    if endpoint is None:
        raise Refused.of(
            "run.locked",
            "An engine that cannot be found works on this run.",
            "Name its workspace with --workspace.",
        )
    async with EngineClient(endpoint.port, endpoint.token) as client:
        await client.project(str(folder.parents[1]))  # an engine knows what it was shown
        yield client
