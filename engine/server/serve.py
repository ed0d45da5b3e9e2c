"""Engine process: locks the workspace, listens on loopback, writes the discovery file, serves until
it is stopped or idle."""

import asyncio
import contextlib
import json
import os
import secrets
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil

from engine.judge.providers import fork_server as judge_forks
from engine.launcher.local import discovery_file
from engine.policy import fork_server as torch_forks
from engine.protocol import API_VERSION
from engine.protocol.requests.runs import Handshake
from engine.runtime.files import PRIVATE_MODE, replace_file
from engine.runtime.life_pipe import adopt_orphans, hide_from_peers
from engine.server.app import make_app
from engine.server.composition import Services
from engine.server.connections import Connections, raise_descriptor_limit, share_of, start_serving
from engine.server.lock import workspace_lock


async def serve(workspace: Path, say_ready: Callable[[Handshake], None]) -> None:
    """Run an engine until a stop is requested or it is idle; `say_ready` gets the handshake. Raises
    Refused if another engine uses the workspace."""
    os.umask(0o077)
    asyncio.get_running_loop().set_exception_handler(_complain)
    adopt_orphans()
    hide_from_peers()
    workspace.mkdir(parents=True, exist_ok=True)
    discovery = discovery_file(workspace)
    with workspace_lock(workspace, discovery), _loopback() as listening:
        port = listening.getsockname()[1]
        services = Services(workspace, secrets.token_urlsafe(32), port)
        connections = Connections(share_of(raise_descriptor_limit()))
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, services.stop.set)
        handshake = _announce(discovery, port, services)
        app = make_app(services, port, connections.prove)
        server, serving = await start_serving(app, listening, connections)
        say_ready(handshake)
        async with torch_forks.forking(), judge_forks.forking():
            await services.open()
            try:
                await _until_stopped(services, serving)
            finally:
                discovery.unlink(missing_ok=True)  # whoever comes now starts another one
                await services.close()
                server.should_exit = True
                await serving


def _complain(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Handle exceptions that no task has caught. An InvalidStateError from anyio is ignored: anyio
    waits for a Unix socket with a bare Future.set_result, which fails harmlessly if the wait is
    cancelled in the same iteration of the loop."""
    late = isinstance(context.get("exception"), asyncio.InvalidStateError)
    if not (late and "Future.set_result" in context["message"]):
        loop.default_exception_handler(context)


async def _until_stopped(services: Services, serving: "asyncio.Task[None]") -> None:
    while not (services.stop.is_set() or services.is_idle() or serving.done()):
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(services.stop.wait(), 1.0)


@contextlib.contextmanager
def _loopback() -> Iterator[socket.socket]:
    with contextlib.closing(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(128)
        yield listening


def _announce(file: Path, port: int, services: Services) -> Handshake:
    """Write the discovery file, readable only by its owner, and return the handshake."""
    handshake = Handshake(
        pid=os.getpid(),
        start_time=psutil.Process().create_time(),
        port=port,
        api=API_VERSION,
        workspace=str(services.workspace),
    )
    record = {**handshake.model_dump(), "token": services.token}
    replace_file(file, json.dumps(record), PRIVATE_MODE)
    return handshake
