"""Connection to the engine of a workspace, or to the one that has a run open."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from engine.cli.terminal import warn
from engine.client import EngineClient
from engine.launcher.local import default_workspace, find, start
from engine.protocol.problems import LaunchError, Refused
from engine.storage.run_folder.run import is_locked

CLOSING_S = 10


@asynccontextmanager
async def engine_for(workspace: str | None) -> AsyncIterator[EngineClient]:
    """Client of the engine of a workspace, started if necessary. An engine started here ends with
    the block; if it has active runs or SkyRL's server then, it exits by itself when it is idle."""
    place = Path(workspace) if workspace else default_workspace()
    endpoint = await find(place)
    ours = endpoint is None
    endpoint = endpoint or await start(place)
    if endpoint.notice:
        warn(endpoint.notice)
    async with EngineClient(endpoint.port, endpoint.token) as client:
        try:
            yield client
        finally:
            if ours:
                with contextlib.suppress(LaunchError):
                    await _end(client)


async def _end(client: EngineClient) -> None:
    """Shut the engine down once no run or sweep is active; gives up after `CLOSING_S` seconds, or
    at once if SkyRL's server is to go on."""
    if (await client.skyrl()).state not in ("off", "failed"):
        return
    for _ in range(CLOSING_S * 10):
        swept = any(one.state in ("waiting", "running") for one in await client.sweeps())
        if not swept and not (await client.info()).living_runs:
            await client.shut_down()
            return
        await asyncio.sleep(0.1)


@asynccontextmanager
async def engine_of(folder: Path, workspace: str | None) -> AsyncIterator[EngineClient | None]:
    """Context manager with a client of the engine that has the run in `folder` open; None if none
    has. Looks for that engine in `workspace` (None: the default), then in the folder that contains
    the project. Raises Refused if it is in neither, LaunchError if its version differs."""
    if not await asyncio.to_thread(is_locked, folder):
        yield None
        return
    known = Path(workspace) if workspace else default_workspace()
    endpoint = await find(known) or await find(folder.parents[2])
    if endpoint is None:
        raise Refused.of(
            "run.locked",
            "This run is in use by an engine that cannot be found.",
            "Pass that engine's workspace with --workspace.",
        )
    async with EngineClient(endpoint.port, endpoint.token) as client:
        await client.project(str(folder.parents[1]))  # an engine knows what it was shown
        yield client
