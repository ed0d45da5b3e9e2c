"""Locks between processes: flock on a file, released by the kernel with the process that holds it.

`filelock` has no lock that can be probed without being taken, none on a file that has content of
its own, and no text of the holder; all three are needed here.
"""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

RETRY_S = 0.05


class Busy(BlockingIOError):
    """The lock is held by another process; `holder` is what it wrote into the file, or empty."""

    def __init__(self, file: Path, holder: str) -> None:
        super().__init__(f"{file} is locked by {holder or 'another process'}")
        self.holder = holder


def lock_descriptor(descriptor: int, wait_s: float | None = 0.0, *, shared: bool = False) -> bool:
    """Lock an open file; `wait_s` None waits for ever. Returns whether it was locked in time."""
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
    """Create and lock a file (mode 0600, never a link); returns its descriptor, and closing that
    releases the lock. `holder` is written into it. Raises Busy, OSError."""
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
    """Release a lock that was taken when the block ends."""
    try:
        yield
    finally:
        os.close(descriptor)


def is_locked(file: Path) -> bool:
    """Whether a process holds the lock of a file right now; False where there is no file."""
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not lock_descriptor(descriptor, shared=True)
    finally:
        os.close(descriptor)
