"""Atomic replacement of text files."""

import os
from pathlib import Path

PRIVATE_MODE = 0o600


def write_atomically(file: Path, text: str, mode: int = 0o666) -> None:
    """Write a file beside it, fsync, rename: after a crash the file has its old content or the new
    one, never a part. `mode` is the permissions, less the umask. Raises OSError."""
    scratch = file.with_name(f".{file.name}.{os.getpid()}.tmp")

    def create(path: str, flags: int) -> int:
        return os.open(path, flags, mode)

    try:
        with open(scratch, "w", encoding="utf-8", opener=create) as target:
            target.write(text)
            target.flush()
            os.fsync(target.fileno())
        scratch.replace(file)
    finally:
        scratch.unlink(missing_ok=True)
