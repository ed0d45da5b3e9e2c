"""Fixtures of sandboxed agents: a server in place of the gateway."""

import http.server
import threading
from collections.abc import Iterator
from typing import Any

import pytest


class Gateway(http.server.BaseHTTPRequestHandler):
    """Server in place of the gateway: /hold answers after /go, and /wait once /hold was asked."""

    held, go = threading.Event(), threading.Event()

    def do_GET(self) -> None:
        match self.path.rpartition("/")[2]:
            case "hold":
                self.held.set()
                assert self.go.wait(30)
            case "wait":
                assert self.held.wait(30)
            case "go":
                self.go.set()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"hello from " + self.path.encode())

    def log_message(self, *arguments: Any) -> None:
        pass


@pytest.fixture
def port() -> Iterator[int]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Gateway)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port
    server.shutdown()
    server.server_close()
    thread.join()
