"""Interface of SSH connections, and of the questions that they ask the person."""

import os
import stat
from collections.abc import AsyncIterable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from engine.protocol.problems import Problem
from engine.protocol.requests.remote import HostSpec, Question
from engine.remote.ssh.commands import receive_file
from engine.remote.ssh.problems import socket_unusable, upload_failed

REACH_S = 10.0
"""Name, TCP, and on the way through a jump host its part of it."""
GREET_S = 20.0
"""From there to a server whose key is known: version and key exchange."""
AUTHENTICATE_S = 60.0
"""From there to a connection, without the time that a person takes to answer."""
KEEPALIVE_S = 5
UNANSWERED = 3
"""Keep-alives that may go without an answer; the next one, after 20 s of silence, is the end."""
TRIES = 3
"""Attempts for a passphrase, a password or a code."""


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    code: int
    """Exit code as a shell reports it: 128 + n after signal n."""
    out: bytes
    """Empty where somebody heard it as it came."""
    err: bytes


class Asker(Protocol):
    """A person, somewhere. Cancelled where the answer is no longer wanted."""

    async def ask(self, question: Question) -> str | None:
        """None: gave up."""


class Connection(Protocol):
    """An authenticated connection. Every method raises LaunchError `ssh.lost` where it is gone."""

    server: str
    """`user@name:port`, as it was reached."""

    async def run(
        self,
        command: str,
        input: bytes | AsyncIterable[bytes] | None = None,
        heard: Callable[[bytes], None] | None = None,
    ) -> Done:
        """`command` by /bin/sh there, whatever the login shell; no terminal. `heard` gets stdout
        as it comes. Cancelled, it ends the command's process group as far as SSH reaches it."""

    async def upload(
        self, data: AsyncIterable[bytes], path: str, begin: int = 0, mode: int = 0o600
    ) -> None:
        """`data` into a file there from byte `begin` on; what stood behind it goes. `path` is
        taken to the letter, from the home where it is relative; no other file is touched. Cut off,
        what has arrived stays. Raises LaunchError `ssh.upload_failed` with what the server says."""
        done = await self.run(receive_file(path, begin, mode), data)
        if done.code:
            raise upload_failed(self.server, path, done.err.decode(errors="replace"))

    async def forward(self, port: int, socket: Path) -> None:
        """A unix socket here (0600, its folder 0700) that leads to 127.0.0.1:`port` there, and
        nowhere else, until this connection is closed. Nothing has to listen there yet."""

    async def wait_closed(self) -> Problem | None:
        """Returns when the connection is gone: why, or None where `close` was called."""

    async def close(self) -> None:
        """Ends it, and what belongs to it here. May be called again."""


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
        raise socket_unusable(str(folder), "the folder is a link or belongs to somebody else")
    if stat.S_IMODE(status.st_mode) & 0o077:
        raise socket_unusable(str(folder), "others may enter the folder")
    if socket.exists() and not socket.is_socket():
        raise socket_unusable(str(socket), "something else has this name")
    socket.unlink(missing_ok=True)


async def connect(
    spec: HostSpec, asker: Asker, *, config: Path | None = None, known_hosts: Path | None = None
) -> Connection:
    """Authenticated, and with a host key that is on record.

    `config` is read in place of ~/.ssh/config and the machine's; `known_hosts` is the person's
    where the configuration names none. Raises LaunchError; `problems.may_pass` says whether trying
    again can help. Cancelled, nothing stays open.
    """
    if spec.transport == "system":
        from engine.remote.ssh.openssh.connection import connect_by_openssh

        return await connect_by_openssh(spec.address, asker, config, known_hosts)
    from engine.remote.ssh.asyncssh.connection import connect_by_asyncssh

    return await connect_by_asyncssh(spec.address, asker, config, known_hosts)
