"""The HTTP server of an engine, and of a served model: uvicorn with our limits on connections."""

import asyncio
import contextlib
import socket

import uvicorn
from starlette.types import ASGIApp

from engine.server.connections import BACKLOG, Connections, count_repetitions


async def start_serving(
    app: ASGIApp, listening: socket.socket, connections: Connections
) -> "tuple[uvicorn.Server, asyncio.Task[None]]":
    """Returns when connections are taken. Set `should_exit` of the server and await the task to
    end it."""
    config = uvicorn.Config(
        app,
        http=connections.protocol,  # type: ignore[arg-type] # whatever makes one will do
        log_level="warning",
        access_log=False,
        server_header=False,
        date_header=False,
        timeout_graceful_shutdown=2,
        lifespan="off",
        # asyncio takes so many connections in a row, and where descriptors run out it complains,
        # and plans to try again, as often.
        backlog=1,
    )
    count_repetitions()
    server = uvicorn.Server(config)
    server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign,assignment]
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    while not (server.started or serving.done()):  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0.001)
    if not serving.done():
        listening.listen(BACKLOG)  # the kernel's queue is another matter
    return server, serving
