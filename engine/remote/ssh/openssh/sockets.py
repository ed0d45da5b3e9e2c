"""A place for a unix socket that nobody else can reach."""

import os
import stat
from pathlib import Path

from engine.remote.ssh.problems import socket_unusable

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
