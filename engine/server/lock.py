"""One engine per workspace: a flock, released by the kernel however the engine dies."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from engine.protocol.problems import Refused


@contextlib.contextmanager
def workspace_lock(workspace: Path) -> Iterator[None]:
    """Raises Refused, naming the holder, where another engine holds the workspace."""
    folder = workspace / ".atelier"
    folder.mkdir(mode=0o700, exist_ok=True)
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
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
