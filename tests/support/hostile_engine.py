"""Engine that lies to its home machine: a real engine behind a proxy on localhost, which changes
its responses as a test defines, and records everything it receives."""

import contextlib
import http.client
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from tests.support.lying_engine import Asked, Said, lying

KINDS: dict[str, str] = {
    r"POST /lease": "lease",
    r"GET /engine": "info",
    r"GET /runs": "runs",
    r"POST /runs": "start",
    r"GET /models": "models",
    r"POST /sync/missing": "missing",
    r"POST /sync/commit": "commit",
    r"GET /sync/contents/\w+": "begun",
    r"GET /runs/\w+/files": "files",
    r"GET /runs/\w+/file": "file",
    r"GET /runs/\w+/changes": "changes",
    r"GET /runs/\w+/ticks": "ticks",
    r"GET /runs/\w+": "run",
    r"GET /home-requests": "errands",
    r"POST /runs/\w+/command": "command",
}
"""Messages of the protocol between home and server, by method and path."""


@dataclass(frozen=True)
class Lie:
    """Response in place of the true one; None keeps the true value."""

    body: bytes | None = None
    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    endless: bytes = b""
    """Repeated until the client disconnects."""


Lies = Callable[[str, str, bytes], Lie | None]
"""(kind, run id or path, true body) -> lie, or None for the true response."""


def kind_of(method: str, path: str) -> str:
    message = f"{method} {path}"
    return next((kind for form, kind in KINDS.items() if re.fullmatch(form, message)), "")


class HostileEngine:
    """Proxy; `lies` decides about every response, `received` has the bytes of every request."""

    def __init__(self, port_file: Path) -> None:
        """Read the port of the engine behind the proxy from `port_file`, once it was started."""
        self._port_file = port_file
        self.lies: Lies = lambda kind, path, body: None
        self.received = bytearray()
        self._serving = lying(self._answer)
        self.port = self._serving.__enter__().port

    def stop(self) -> None:
        """Stop the proxy, after the engine behind it has ended."""
        self._serving.__exit__(None, None, None)

    def _answer(self, asked: Asked) -> Said:
        self.received += f"{asked.method} {asked.target}\n{asked.headers}\n".encode() + asked.body
        kind = kind_of(asked.method, asked.path)
        if kind in WAITING and (lie := self.lies(kind, asked.path, b"")):
            return _make_response(lie, b"", 200, {})
        port = int(self._port_file.read_text())
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        headers = {name: value for name, value in asked.headers if name.lower() not in OF_THE_WAY}
        try:
            connection.request(asked.method, asked.target, asked.body or None, headers)
            true = connection.getresponse()
        except OSError:
            connection.close()
            return Said(status=502)
        headers_kept = {name: value for name, value in true.getheaders() if name.lower() in KEPT}
        if kind in WAITING:

            def close() -> None:
                true.close()
                connection.close()

            return Said(
                status=true.status,
                headers=headers_kept,
                stream=lambda out: _forward(true, out),
                close=close,
            )
        with contextlib.closing(connection), true:
            try:
                whole = true.read()
            except (OSError, http.client.HTTPException):
                return Said(status=502)
        lie = self.lies(kind, asked.path, whole)
        return (
            _make_response(lie, whole, true.status, headers_kept)
            if lie
            else Said(whole, true.status, headers_kept)
        )


OF_THE_WAY = {"host", "content-length", "transfer-encoding", "connection"}
KEPT = {"content-type", "atelier-last-seq", "atelier-known-seq"}
WAITING = {"ticks", "file", "errands", "changes"}
"""Streamed or late responses: lies about them do not wait for the true response."""


def _make_response(lie: Lie, true: bytes, status: int, headers: dict[str, str]) -> Said:
    def endless(out: BinaryIO) -> None:
        while True:
            out.write(lie.endless)

    body = true if lie.body is None else lie.body
    stream = endless if lie.endless else None
    return Said(body, lie.status or status, headers | lie.headers, stream)


def _forward(true: http.client.HTTPResponse, out: BinaryIO) -> None:
    with contextlib.suppress(OSError, http.client.HTTPException):
        while block := true.read1(2**16):
            out.write(block)
            out.flush()


ATTACH = """#!/bin/sh
exec "{python}" "{script}" "{python}" "{hostile}" "{port_file}" "$@"
"""


def write_attach_script(python: Path, hostile_port: int, port_file: Path) -> None:
    """Replace a server's Python by a script, so that its engine is reached through the proxy."""
    script = Path(__file__).with_name("hostile_attach.py")
    python.write_text(
        ATTACH.format(
            python=sys.executable, script=script, hostile=hostile_port, port_file=port_file
        )
    )
    python.chmod(0o755)
