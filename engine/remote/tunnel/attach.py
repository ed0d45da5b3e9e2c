"""Attach command of a server: prints one line with the address of its engine.

The line contains the token and is secret. An engine of another build without active runs is
replaced by this build.
"""

import asyncio
from pathlib import Path

from engine.client import EngineClient
from engine.launcher import local
from engine.launcher.local import Endpoint
from engine.launcher.source_files import build
from engine.protocol.problems import Problem, Refused
from engine.protocol.requests.remote import Reached

LEAVING_S = 15.0


def read_line(text: str) -> Reached | Problem:
    """Parse the last line that the attach command printed on the server: the reached engine or a
    problem. Raises ValueError for any other text."""
    line = text.strip().splitlines()[-1] if text.strip() else ""
    return (
        Problem.model_validate_json(line)
        if '"message"' in line
        else Reached.model_validate_json(line)
    )


async def attach(workspace: Path) -> Reached:
    """Find or start the engine of a workspace on this machine. A running engine of another build is
    replaced unless it has active runs. Raises LaunchError."""
    endpoint = await local.find_or_start(workspace)
    reached, living = await _ask(endpoint)
    if reached.build != build() and not living:
        async with EngineClient(endpoint.port, endpoint.token) as client:
            await client.shut_down()
        await _until_gone(workspace, endpoint.pid)
        reached, _ = await _ask(await local.find_or_start(workspace))
    return reached


async def detach(workspace: Path) -> None:
    """Shut down the engine of a workspace, if one is running, and wait until it is gone. Raises
    Refused while runs are active."""
    endpoint = await local.find(workspace)
    if endpoint is None:
        return
    _, living = await _ask(endpoint)
    if living:
        raise Refused.of(
            "run.lives",
            "A run is active on the server.",
            "Stop the run first; removing Atelier also deletes the run's checkpoints.",
        )
    async with EngineClient(endpoint.port, endpoint.token) as client:
        await client.shut_down()
    await _until_gone(workspace, endpoint.pid)


async def _ask(endpoint: Endpoint) -> tuple[Reached, int]:
    async with EngineClient(endpoint.port, endpoint.token) as client:
        info = await client.info()
    reached = Reached(
        port=endpoint.port,
        token=endpoint.token,
        pid=endpoint.pid,
        api=info.api,
        version=info.version,
        build=info.build,
        workspace=info.workspace,
    )
    return reached, info.living_runs


async def _until_gone(workspace: Path, pid: int) -> None:
    for _ in range(int(LEAVING_S * 10)):
        found = await local.find(workspace)
        if found is None or found.pid != pid:
            return
        await asyncio.sleep(0.1)
