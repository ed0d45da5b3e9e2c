"""File locks between processes (flock), released by the kernel when their holder exits.

`filelock` cannot test a lock without acquiring it, lock a file that has content, or store a text
about the holder; all three are needed here.
"""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

RETRY_S = 0.05


class Busy(BlockingIOError):
    """Lock is held by another process; `holder` is the text that it stored, or empty."""

    def __init__(self, file: Path, holder: str) -> None:
        super().__init__(f"{file} is locked by {holder or 'another process'}")
        self.holder = holder


def lock_descriptor(descriptor: int, wait_s: float | None = 0.0, *, shared: bool = False) -> bool:
    """Lock an open file, waiting up to `wait_s` seconds (None: without a limit); returns whether
    that succeeded. Locks with `shared` do not exclude each other."""
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    if wait_s is None:
        fcntl.flock(descriptor, kind)
        return True
    end = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= end:
                return False
            time.sleep(RETRY_S)
        else:
            return True


def take_lock(file: Path, wait_s: float | None = 0.0, holder: str = "") -> int:
    """Create and lock a file (mode 0600, never a link), waiting up to `wait_s` seconds (None:
    without a limit); returns its descriptor, and closing that releases the lock. `holder` is
    written into the file. Raises Busy, OSError."""
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        if not lock_descriptor(descriptor, wait_s):
            raise Busy(file, os.pread(descriptor, 500, 0).decode(errors="replace").strip())
        if holder:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, holder.encode(), 0)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


@contextlib.contextmanager
def released(descriptor: int) -> Iterator[None]:
    """Context manager that closes the locked `descriptor` when the block ends, which releases its
    lock."""
    try:
        yield
    finally:
        os.close(descriptor)


def is_locked(file: Path) -> bool:
    """Whether any process holds the lock of a file; False if the file is missing or cannot be
    opened."""
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not lock_descriptor(descriptor, shared=True)
    finally:
        os.close(descriptor)
