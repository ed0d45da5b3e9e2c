"""Interface of SSH connections, and of the questions that they put to the person."""

import os
import stat
from collections.abc import AsyncIterable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from engine.protocol.problems import Problem
from engine.protocol.requests.remote import Question
from engine.remote.ssh.commands import receive_file
from engine.remote.ssh.problems import socket_unusable, upload_failed

REACH_S = 10.0
"""Seconds for name resolution and TCP connection, also for a connection made by a jump host."""
GREET_S = 20.0
"""Seconds for the SSH version and key exchange, until the host key is verified."""
AUTHENTICATE_S = 60.0
"""Seconds for authentication, excluding the time that a person takes to reply."""
KEEPALIVE_S = 5
UNANSWERED = 3
"""Tolerated unanswered keep-alives; the next one, after 20 s of silence, ends the connection."""
TRIES = 3
"""Attempts for a passphrase, a password or a code."""


@dataclass(frozen=True)
class Done:
    """Result of a command that has ended."""

    code: int
    """Exit code as a shell reports it: 128 + n after signal n."""
    out: bytes
    """Stdout; empty if a callback received it."""
    err: bytes


class Asker(Protocol):
    """Interface for questions to a person. The caller cancels `ask` when the reply is no longer
    needed."""

    async def ask(self, question: Question) -> str | None:
        """Ask the person and return the reply; None if they cancel."""


class Connection(Protocol):
    """Authenticated connection. Every method raises LaunchError `ssh.lost` after it is lost."""

    server: str
    """Address as `user@name:port`."""

    async def run(
        self,
        command: str,
        input: bytes | AsyncIterable[bytes] | None = None,
        on_stdout: Callable[[bytes], None] | None = None,
    ) -> Done:
        """Run `command` by the server's /bin/sh without a terminal, with `input` as its stdin, and
        return its exit code and output. `on_stdout` receives stdout in chunks instead. Cancelling
        ends the command's process group if SSH reaches it."""

    async def upload(
        self, data: AsyncIterable[bytes], path: str, begin: int = 0, mode: int = 0o600
    ) -> None:
        """Write `data` into a remote file from byte `begin` on, truncating it there. `path` is
        taken literally, and a relative one is below the home folder. An interrupted upload keeps
        the uploaded part. Raises LaunchError `ssh.upload_failed` with the server's message."""
        done = await self.run(receive_file(path, begin, mode), data)
        if done.code:
            raise upload_failed(self.server, path, done.err.decode(errors="replace"))

    async def forward(self, port: int, socket: Path) -> None:
        """Forward a local Unix socket (0600, its folder 0700) to 127.0.0.1:`port` on the server
        until this connection is closed. The port need not have a listener yet."""

    async def wait_closed(self) -> Problem | None:
        """Wait until the connection ends; returns the reason, or None if `close` was called."""

    async def close(self) -> None:
        """Close the connection and its local resources. May be called repeatedly."""


LONGEST_BYTES = 103
"""Longest path of a socket: 104 bytes on macOS and 108 on Linux, with the final zero."""


def prepare_socket(socket: Path) -> None:
    """Create the private folder (0700) of a socket, and remove a stale one. Raises LaunchError
    `ssh.socket_unusable`."""
    if len(os.fsencode(socket)) > LONGEST_BYTES:
        raise socket_unusable(str(socket), "its path is too long for a socket")
    folder = socket.parent
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise socket_unusable(str(folder), "the folder is a link or belongs to another user")
    if stat.S_IMODE(status.st_mode) & 0o077:
        raise socket_unusable(str(folder), "other users can access the folder")
    if socket.exists() and not socket.is_socket():
        raise socket_unusable(str(socket), "another file with this name exists")
    socket.unlink(missing_ok=True)
