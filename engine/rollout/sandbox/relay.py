"""Connections of sandboxed rollouts: to the gateway, and through a proxy to allowed hosts.

A rollout's first process listens on the loopback device of its own network namespace and hands the
listening socket to the engine, which accepts there: nothing else leads out of the namespace.
"""

import asyncio
import contextlib
import json
import os
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field

MOST_CONNECTIONS = 64
"""Open connections of one rollout; further ones are closed at once."""
CHUNK = 2**16
HEAD_BYTES = 8192
CONNECT = re.compile(
    rb"CONNECT ([A-Za-z0-9.\-]{1,253}|\[[0-9a-fA-F:]{2,45}\]):(\d{1,5}) HTTP/1\.[01]\r\n"
)
CONNECT_S = 20.0
Serve = Callable[["Outlet", asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Outlet:
    """Ways out of one rollout's network namespace, and what it was refused."""

    port: int
    """Port of the gateway on this machine."""
    hosts: Sequence[str]
    """Allowed `host` or `host:port`; without a port, 443."""
    refused: list[str] = field(default_factory=list)
    """Hosts that the rollout tried to reach and may not."""
    files: "asyncio.Future[int] | None" = None
    """Descriptor of the archive of its files, once it has been handed over."""
    servers: list[asyncio.Server] = field(default_factory=list)
    tasks: set["asyncio.Task[None]"] = field(default_factory=set)
    closed: bool = False


class Relay:
    """Descriptors and connections of the rollouts of one sandbox process."""

    def __init__(self, rights: socket.socket) -> None:
        """`rights`: the engine's end of the socket over which descriptors are exchanged."""
        self._rights = rights
        rights.setblocking(False)
        self._outlets: dict[str, Outlet] = {}
        self._accepting: set[asyncio.Task[None]] = set()
        asyncio.get_running_loop().add_reader(rights.fileno(), self._receive)

    @contextlib.asynccontextmanager
    async def opened(self, rollout: str, outlet: Outlet) -> AsyncIterator[Outlet]:
        """Context manager in which the rollout of this name reaches what `outlet` allows."""
        self._outlets[rollout] = outlet
        try:
            yield outlet
        finally:
            del self._outlets[rollout]
            await _close(outlet)

    def send_files(self, rollout: str, descriptor: int) -> None:
        """Send the sandbox process the archive for the rollout of this name."""
        socket.send_fds(self._rights, [rollout.encode()], [descriptor])

    async def close(self) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._rights.fileno())
        self._rights.close()
        await asyncio.gather(*self._accepting, return_exceptions=True)

    def _receive(self) -> None:
        """Take one message; descriptors that no rollout was to send are closed."""
        try:
            text, descriptors, _, _ = socket.recv_fds(self._rights, 1000, 8)
        except BlockingIOError:
            return
        except OSError:
            text, descriptors = b"", []
        if not text and not descriptors:
            asyncio.get_running_loop().remove_reader(self._rights.fileno())
            return
        try:
            message = json.loads(text)
            outlet, kind = self._outlets[message["rollout"]], message["kind"]
            if len(descriptors) != 1:
                raise ValueError("one descriptor was expected")
            self._take(outlet, kind, descriptors[0])
        except (ValueError, KeyError, TypeError, OSError):  # the agent's code may send anything
            for descriptor in descriptors:
                with contextlib.suppress(OSError):
                    os.close(descriptor)

    def _take(self, outlet: Outlet, kind: str, descriptor: int) -> None:
        if kind == "files":
            if outlet.files is None or outlet.files.done():
                raise ValueError("no files are expected")
            outlet.files.set_result(descriptor)
            return
        listening = socket.socket(fileno=descriptor)
        kinds = (listening.family, listening.type)
        accepts = listening.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        if kinds != (socket.AF_INET, socket.SOCK_STREAM) or not accepts or len(outlet.servers) > 1:
            listening.detach()
            raise ValueError("this is no listening socket")
        serve = _to_gateway if kind == "model" else _to_allowed_host
        task = asyncio.create_task(_accept(listening, outlet, serve), name="sandbox relay")
        self._accepting.add(task)
        task.add_done_callback(self._accepting.discard)


async def _accept(listening: socket.socket, outlet: Outlet, serve: Serve) -> None:
    """Serve connections of one listening socket while the rollout runs."""

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(outlet.tasks) >= MOST_CONNECTIONS or outlet.closed:
            return writer.close()
        task = asyncio.current_task()
        assert task is not None
        outlet.tasks.add(task)
        try:
            await serve(outlet, reader, writer)
        except OSError:
            pass  # either side has gone
        finally:
            outlet.tasks.discard(task)
            writer.close()

    server = await asyncio.start_server(one, sock=listening, limit=CHUNK)
    if outlet.closed:
        server.close()
    else:
        outlet.servers.append(server)


async def _close(outlet: Outlet) -> None:
    outlet.closed = True
    for server in outlet.servers:
        server.close()
    for task in list(outlet.tasks):
        task.cancel()
    await asyncio.gather(*outlet.tasks, return_exceptions=True)
    if outlet.files is not None and outlet.files.done() and not outlet.files.cancelled():
        with contextlib.suppress(OSError):
            os.close(outlet.files.result())


async def _to_gateway(
    outlet: Outlet, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    await _join(reader, writer, "127.0.0.1", outlet.port)


async def _to_allowed_host(
    outlet: Outlet, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Answer one CONNECT request of a proxy client (RFC 9110, 9.3.6)."""
    try:
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), CONNECT_S)
    except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return
    request = CONNECT.match(head)
    if request is None or len(head) > HEAD_BYTES:
        return await _answer(writer, "405 Method Not Allowed", "Only HTTPS passes: use CONNECT.")
    host, port = request[1].decode().strip("[]").lower(), int(request[2])
    if not allows(outlet.hosts, host, port):
        name = host if port == 443 else f"{host}:{port}"
        if name not in outlet.refused and len(outlet.refused) < 20:
            outlet.refused.append(name)
        words = f"{name} is not in agent.allowed_hosts of this project."
        return await _answer(writer, "403 Forbidden", words)
    try:
        await _join(reader, writer, host, port, b"HTTP/1.1 200 Connection established\r\n\r\n")
    except (OSError, TimeoutError) as error:
        await _answer(writer, "502 Bad Gateway", f"{host} cannot be reached: {error}.")


def allows(hosts: Sequence[str], host: str, port: int) -> bool:
    """Whether a list of `host`, `host:port` or `*.domain` allows a connection."""
    for entry in hosts:
        name, colon, number = entry.rpartition(":")
        name, wanted = (name, number) if colon and number.isdigit() else (entry, "443")
        matches = host.endswith(name[1:].lower()) if name.startswith("*.") else host == name.lower()
        if matches and wanted == str(port):
            return True
    return False


async def _answer(writer: asyncio.StreamWriter, status: str, words: str) -> None:
    body = (words + "\n").encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n"
    writer.write(head.encode() + b"Connection: close\r\n\r\n" + body)
    await writer.drain()


async def _join(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    host: str,
    port: int,
    greeting: bytes = b"",
) -> None:
    """Connect to an address and pass bytes both ways until both sides have closed."""
    theirs, to_them = await asyncio.wait_for(asyncio.open_connection(host, port), CONNECT_S)
    try:
        if greeting:
            writer.write(greeting)
        await asyncio.gather(_copy(reader, to_them), _copy(theirs, writer))
    finally:
        to_them.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(CHUNK):
        writer.write(data)
        await writer.drain()
    with contextlib.suppress(OSError):
        writer.write_eof()


def ports(gateway_port: int, hosts: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Kinds and ports of the sockets on which a rollout listens for itself."""
    yield "model", gateway_port
    if hosts:
        yield "proxy", gateway_port + 1 if gateway_port < 65535 else gateway_port - 1
