"""One engine per workspace, one training run per device: flocks, released by the kernel however the
engine dies.
"""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from engine.launch.local import runtime_dir
from engine.protocol.problems import Refused

PATIENCE_S = 20.0
"""A run needs this long at most to end its workers."""


@contextlib.contextmanager
def workspace_lock(workspace: Path, discovery: Path) -> Iterator[None]:
    """Raises Refused, naming the holder, where another engine holds the workspace.

    A holder without a discovery file is on its way out (or in), and is waited for a while.
    """
    folder = workspace / ".atelier"
    folder.mkdir(mode=0o700, exist_ok=True)
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        _take(descriptor, discovery)
    except BlockingIOError:
        holder = os.read(descriptor, 32).decode(errors="replace").strip()
        os.close(descriptor)
        raise Refused.of(
            "engine.workspace_locked",
            f"Another engine (process {holder or '?'}) holds {workspace}.",
            "Use that one, or end it first.",
            where=str(folder / "lock"),
        ) from None
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _take(descriptor: int, discovery: Path) -> None:
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if discovery.exists() or time.monotonic() > end:
                raise
        time.sleep(0.1)


@contextlib.contextmanager
def device_lock():  # type: ignore[no-untyped-def]
    """One training run per device on this machine, also across engines."""
    descriptor = os.open(runtime_dir() / "device.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise Refused.of(
            "run.device_busy",
            "Another engine of yours is training on this machine.",
            "Wait for it, or stop it first.",
        ) from None
    finally:
        os.close(descriptor)
