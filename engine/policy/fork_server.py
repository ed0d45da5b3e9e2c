"""Fork server of torch processes (`torch/preloaded.py`), for policies and exports.

Used only without CUDA, which does not survive a fork.
"""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable

from engine.hardware.gpus import read_gpus
from engine.policy.worker import VARIABLES
from engine.runtime.child import Launch, Process, start_program
from engine.runtime.fork_server import CAN_FORK, ForkServer

PROGRAM = (sys.executable, "-m", "engine.policy.torch.preloaded")
INHERITED = "ATELIER_FORK_SERVER"
"""Environment variable by which the program that started this process passes on its fork server
(`ForkServer.inherit`)."""
NO_THREADS = {"OPENBLAS_NUM_THREADS": "1"}
"""Variable without which numpy starts threads while it is imported."""
_current: ForkServer | None = None


def launcher() -> Callable[[Launch], Awaitable[Process]]:
    """Return the function that starts a torch process without a GPU: by forking in a `forking`
    block, else as a new program."""
    return _current.launch if _current else start_program


def server_pids() -> list[int]:
    """PIDs of this process's fork server; empty if there is none."""
    return _current.pids if _current else []


async def warm_up() -> None:
    """Start the fork server of the `forking` block without waiting for it, unless the machine has a
    GPU, where policy processes are not forked. Does nothing outside of a block."""
    if _current and not (await asyncio.to_thread(read_gpus)).cards:
        await _current.warm()


@contextlib.asynccontextmanager
async def forking() -> AsyncIterator[None]:
    """Let torch processes be started by forking during the block, where the operating system
    supports it (Linux), and end the fork server afterwards."""
    global _current
    if CAN_FORK:
        _current = ForkServer(PROGRAM, VARIABLES, NO_THREADS)
        if text := os.environ.pop(INHERITED, ""):
            _current.inherit(text)
    try:
        yield
    finally:
        server, _current = _current, None
        if server:
            await server.close()
