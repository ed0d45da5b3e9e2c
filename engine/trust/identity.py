"""Identity of a folder: a text that another folder at the same path does not have.

The inode alone is none: ext4 gives the number of a removed folder to the next one that is made. The
time at which the folder was made is added where the file system keeps it.
"""

import ctypes
import os
import struct
import sys
from functools import cache
from pathlib import Path
from typing import Any

AT_FDCWD, STATX_BTIME = -100, 0x800
STATX_BYTES, MASK_AT, BTIME_AT = 256, 0, 80
"""Layout of `struct statx` (man 2 statx)."""


def folder_identity(folder: Path) -> str | None:
    """None where there is no folder."""
    try:
        if not folder.is_dir():
            return None
        return f"{folder.stat().st_ino}.{_born_ns(folder)}"
    except OSError:
        return None


def _born_ns(folder: Path) -> int:
    """When the folder was made, in nanoseconds since 1970; 0 where nobody keeps that."""
    if sys.platform == "darwin":
        return int(folder.stat().st_birthtime * 1e9)
    call = _statx()
    if call is None:
        return 0
    found = ctypes.create_string_buffer(STATX_BYTES)
    if call(AT_FDCWD, os.fsencode(folder), 0, STATX_BTIME, found) != 0:
        return 0
    mask = struct.unpack_from("=I", found.raw, MASK_AT)[0]
    seconds, nanoseconds = struct.unpack_from("=qI", found.raw, BTIME_AT)
    return int(seconds) * 10**9 + int(nanoseconds) if mask & STATX_BTIME else 0


@cache
def _statx() -> Any:
    """The C library's function; None where it has none."""
    return getattr(ctypes.CDLL(None), "statx", None) if sys.platform == "linux" else None
