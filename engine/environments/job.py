"""Job on an environment: install, verify, repair or remove, with progress.

Closing the generator ends it; downloads are kept, and a complete environment stays complete.
"""

import asyncio
import contextlib
import json
import os
import signal
import tempfile
from collections.abc import AsyncGenerator
from typing import Any

from engine.environments.bootstrap import EnvironmentMissing, command, life, problem_of
from engine.environments.engines import follow_repair, forget, refuse_removal, sweep
from engine.protocol.records.machine.environments import EnvironmentAction, EnvironmentTicked
from engine.runtime.variables import without_secrets

Ticks = AsyncGenerator[EnvironmentTicked, None]

LINE_LIMIT = 2**22

SHARES = {
    "waiting": (0.0, 0.0),
    "resolving": (0.0, 0.0),
    "checking": (0.0, 0.02),
    "downloading": (0.02, 0.6),
    "installing": (0.6, 0.95),
    "testing": (0.95, 1.0),
    "verifying": (0.0, 0.02),
    "removing": (0.0, 1.0),
}
"""Start and end of each stage as a share of the whole."""


async def carry_out(name: str, action: EnvironmentAction, pids: set[int] | None = None) -> Ticks:
    """Perform an action on an environment in a child process and yield progress; `pids` contains
    its PID while it runs. Raises EnvironmentMissing if it fails, Refused to remove an environment
    in use."""
    if action == "remove":
        await asyncio.to_thread(refuse_removal, name)
        await asyncio.to_thread(forget, name)
    async with contextlib.aclosing(_run(name, action, set() if pids is None else pids)) as ticks:
        async for one in ticks:
            yield one
    if action == "repair":
        await asyncio.to_thread(follow_repair, name)
    if action in ("install", "repair"):
        await asyncio.to_thread(sweep, name)


async def _run(name: str, action: EnvironmentAction, pids: set[int]) -> Ticks:
    async with contextlib.aclosing(progress_of(command(name, action), name, pids)) as progress:
        async for one in progress:
            if "done" in one:
                yield _tick(action, one)


async def progress_of(
    argv: list[str], name: str, pids: set[int]
) -> AsyncGenerator[dict[str, Any], None]:
    """Run bootstrap.py for environment `name` and yield its progress; `pids` contains its PID while
    it runs. Raises EnvironmentMissing if it fails. Closing the generator kills it."""
    with life() as descriptor, tempfile.TemporaryFile() as errors:
        process = await asyncio.create_subprocess_exec(
            *argv,
            "--life",
            str(descriptor),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            pass_fds=[descriptor],
            start_new_session=True,
            env=without_secrets(),
            limit=LINE_LIMIT,
        )
        assert process.stdout is not None
        pids.add(process.pid)
        last: dict[str, Any] = {}
        try:
            async for line in process.stdout:
                last = json.loads(line)
                yield last
            code = await process.wait()
        finally:
            await _end(process)
            pids.discard(process.pid)
        if code:
            errors.seek(0)
            stderr = errors.read().decode(errors="replace")
            raise EnvironmentMissing(problem_of(last, stderr, name))


def _tick(action: EnvironmentAction, values: dict[str, Any]) -> EnvironmentTicked:
    begin, end = SHARES[values["stage"]]
    if action == "verify":
        begin, end = (0.0, 0.9) if values["stage"] == "verifying" else (0.9, 1.0)
    share = begin + (end - begin) * values["done"] / max(1, values["total"])
    return EnvironmentTicked(share=share, **values)


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill the whole process group; it needs no time to clean up."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
