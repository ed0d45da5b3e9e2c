"""Fork servers of judge processes (`preloaded.py`), one per Python executable."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from engine.runtime.child import Launch, Process, start_program
from engine.runtime.fork_server import CAN_FORK, ForkServer

MODULE = "engine.judge.providers.preloaded"
_servers: dict[Path, ForkServer] | None = None


def launcher(python: Path) -> Callable[[Launch], Awaitable[Process]]:
    """Return the function that starts a judge process with this Python: by forking in a `forking`
    block, else as a new program."""
    if _servers is None:
        return start_program
    if python not in _servers:
        _servers[python] = ForkServer((str(python), "-m", MODULE))
    return _servers[python].launch


def server_pids() -> list[int]:
    """PIDs of this process's fork servers; empty if there are none."""
    return [pid for server in (_servers or {}).values() for pid in server.pids]


@contextlib.asynccontextmanager
async def forking() -> AsyncIterator[None]:
    """Let judge processes be started by forking during the block, where the operating system
    supports it (Linux), and end the fork servers afterwards."""
    global _servers
    _servers = {} if CAN_FORK else None
    try:
        yield
    finally:
        servers, _servers = _servers or {}, None
        await asyncio.gather(*(server.close() for server in servers.values()))
