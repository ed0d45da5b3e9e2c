"""HTTP server on localhost, in a thread of its own, with responses set by a test."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import BinaryIO
from urllib.parse import parse_qs, urlsplit

from engine.client import EngineClient

TOKEN = "token"
Reply = Callable[["Asked"], "Said"]


@dataclass(frozen=True)
class Asked:
    """Request that the server has received."""

    method: str
    path: str
    params: dict[str, str]
    body: bytes
    target: str = ""
    """Path and query as received."""
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Said:
    """Response to send.

    `stream` writes a body without a length, until it returns or the client disconnects.
    """

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    stream: Callable[[BinaryIO], None] | None = None
    close: Callable[[], None] = lambda: None
    """Called after the response was sent, or could not be sent."""


@dataclass
class LyingEngine:
    """Started server; `asked` holds every request, oldest first."""

    port: int
    asked: list[Asked] = field(default_factory=list)

    def client(self) -> EngineClient:
        return EngineClient(self.port, TOKEN)


@contextmanager
def lying(reply: Reply) -> Iterator[LyingEngine]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle(self) -> None:
            with suppress(ConnectionError):  # the client has disconnected
                super().handle()

        def _do(self) -> None:
            url = urlsplit(self.path)
            params = {name: values[0] for name, values in parse_qs(url.query).items()}
            body = b"".join(self._blocks())
            headers = tuple(self.headers.items())
            request = Asked(self.command, url.path, params, body, self.path, headers)
            engine.asked.append(request)
            response = reply(request)
            try:
                self._send(response)
            except OSError:
                self.close_connection = True
            finally:
                response.close()

        def _send(self, said: Said) -> None:
            self.send_response(said.status)
            for name, value in said.headers.items():
                self.send_header(name, value)
            if said.stream is None:
                self.send_header("content-length", str(len(said.body)))
            else:
                self.close_connection = True
            self.end_headers()
            self.wfile.write(said.body)
            if said.stream:
                said.stream(self.wfile)  # type: ignore[arg-type]

        def _blocks(self) -> Iterator[bytes]:
            """Read the body, whole or chunked."""
            if self.headers.get("transfer-encoding") != "chunked":
                yield self.rfile.read(int(self.headers.get("content-length", 0)))
                return
            while size := int(self.rfile.readline(), 16):
                yield self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()

        do_GET = do_POST = do_PUT = do_DELETE = _do

        def log_message(self, *_: object) -> None:
            """Write no log to stderr."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    engine = LyingEngine(server.server_address[1])
    try:
        yield engine
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
