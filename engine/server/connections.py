"""Connection limits: their number, their timeouts, and log messages about them.

File descriptors are reserved for runs first. Connections get a share of the rest. Connections that
have not authenticated get a small part with short timeouts, in which a new one replaces the oldest.
"""

import asyncio
import contextlib
import logging
import resource
import socket
import time
from collections.abc import Callable
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp, Scope
from uvicorn.protocols.http.h11_impl import H11Protocol

HEADER_S = 10.0
"""Timeout of a request's head from its first byte, and of the first byte from the connection's
start."""
BODY_S = 60.0
"""Timeout from one piece of a body to the next."""
MOST_DESCRIPTORS = 65_536
RESERVED = 256
"""File descriptors that connections never use."""
MOST_CONNECTIONS, LEAST_CONNECTIONS = 4096, 32
MOST_UNPROVEN = 128
"""Limit of connections without an authenticated request."""
BACKLOG = 1024
QUIET_S = 60.0

logger = logging.getLogger("engine.connections")


def raise_descriptor_limit() -> int:
    """Raise this process's limit of file descriptors as far as allowed; returns the new limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        return most
    return min(soft, MOST_DESCRIPTORS) if soft != resource.RLIM_INFINITY else MOST_DESCRIPTORS


def share_of(descriptors: int) -> int:
    """Number of connections that an engine accepts with this limit of file descriptors."""
    free = descriptors - max(RESERVED, descriptors // 2)
    return max(LEAST_CONNECTIONS, min(MOST_CONNECTIONS, free))


class Connections:
    """All open connections of a server."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._most_unproven = min(MOST_UNPROVEN, most // 2)
        self._unproven: dict[LimitedProtocol, None] = {}
        self._proven: dict[LimitedProtocol, None] = {}
        self._by_address: dict[Any, LimitedProtocol] = {}
        self.closed = 0
        """Connections that were closed to make room."""

    def __len__(self) -> int:
        return len(self._unproven) + len(self._proven)

    def protocol(self, **arguments: Any) -> "LimitedProtocol":
        """Protocol instance for uvicorn whose connection is counted here."""
        return LimitedProtocol(self, **arguments)

    def add(self, one: "LimitedProtocol") -> None:
        self._unproven[one] = None
        self._by_address[one.client] = one
        if len(self._unproven) > self._most_unproven:
            self._close(next(iter(self._unproven)))
        elif len(self) > self._most:
            idle = (other for other in self._proven if not other.is_busy)
            self._close(next(idle, one))

    def remove(self, one: "LimitedProtocol") -> None:
        self._unproven.pop(one, None)
        self._proven.pop(one, None)
        if self._by_address.get(one.client) is one:
            del self._by_address[one.client]

    def prove(self, scope: Scope) -> None:
        """Exempt an authenticated request's connection from the limit on unauthenticated ones."""
        one = self._by_address.get(scope.get("client"))
        if one is not None and one in self._unproven:
            del self._unproven[one]
            self._proven[one] = None

    def _close(self, one: "LimitedProtocol") -> None:
        self.closed += 1
        self.remove(one)
        one.transport.abort()
        logger.warning(
            "Too many connections at once: the oldest connections that sent no key are closed."
        )


class LimitedProtocol(H11Protocol):
    """uvicorn's connection, with limits on the time that a request may take to arrive."""

    def __init__(self, connections: Connections, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._counted = connections
        self._deadline: asyncio.TimerHandle | None = None

    @property
    def is_busy(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # asyncio does so only for sockets that name their protocol; without it the body of an
        # answer waits 40 ms for the acknowledgement of its head.
        line = transport.get_extra_info("socket")
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._counted.add(self)
        self._limit(HEADER_S)

    def connection_lost(self, exc: Exception | None) -> None:
        self._unlimit()
        self._counted.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self.conn.their_state is h11.SEND_BODY:
            self._limit(BODY_S)
        elif self.is_busy:
            self._unlimit()
        elif self._deadline is None and self.timeout_keep_alive_task is None:
            self._limit(HEADER_S)  # the head of a further request has begun

    def on_response_complete(self) -> None:
        self._unlimit()
        super().on_response_complete()

    def _limit(self, seconds: float) -> None:
        self._unlimit()
        self._deadline = self.loop.call_later(seconds, self._late)

    def _unlimit(self) -> None:
        deadline, self._deadline = self._deadline, None
        if deadline is not None:
            deadline.cancel()

    def _late(self) -> None:
        self._deadline = None
        if self.flow is not None and self.flow.read_paused:
            self._limit(BODY_S)  # it is us who do not read
        else:
            self.transport.abort()


class Repeated(logging.Filter):
    """Log filter that passes a repeated message once per `QUIET_S` seconds, with its count."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._seen: dict[str, tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        key = f"{record.msg}{record.exc_info[1]!r}" if record.exc_info else str(record.msg)
        key, now = key[:300], self._clock()
        since, count = self._seen.get(key, (-QUIET_S, 0))
        if now - since < QUIET_S:
            self._seen[key] = (since, count + 1)
            return False
        if len(self._seen) > 1000:
            self._seen.clear()
        self._seen[key] = (now, 0)
        if count:
            record.msg = f"{record.getMessage()} ({count} more within {now - since:.0f} s)"
            record.args = ()
        return True


def count_repetitions() -> None:
    """Make the server's loggers pass a repeated message only once in `QUIET_S` seconds, with the
    number of repetitions."""
    once = Repeated()
    for name in ("uvicorn.error", "asyncio", logger.name):
        logging.getLogger(name).addFilter(once)


async def start_serving(
    app: ASGIApp, listening: socket.socket, connections: Connections
) -> "tuple[uvicorn.Server, asyncio.Task[None]]":
    """Start uvicorn on the socket `listening`; returns when it accepts connections. To stop, set
    `should_exit` of the server and await the task."""
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
