"""Durable files: every fsync, atomic replacement and content hash of the engine.

After a crash a reader finds the old content or the new one, never a mixture. Standard library only.
"""

import hashlib
import os
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

PRIVATE_MODE = 0o600


def sha256_of(file: Path) -> str:
    """SHA-256 of a file, in hexadecimal digits."""
    with file.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()


def sync(path: Path) -> None:
    """Flush a file, or the entries of a folder, to the disk. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_open(target: IO[Any]) -> None:
    """Flush an open file, buffers included, to the disk. Raises OSError."""
    target.flush()
    os.fsync(target.fileno())


def sync_tree(folder: Path) -> None:
    """Flush all files of a folder, then its folders, to the disk. Raises OSError."""
    for path in [*sorted(folder.rglob("*"), key=Path.is_dir), folder]:
        sync(path)


def temporary_file(file: Path) -> Path:
    """Path for a temporary file beside a file, not created; different for each call, so that
    threads and processes may replace the same file at once."""
    return file.with_name(f".{file.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")


def replace_file(file: Path, content: str | bytes, mode: int = 0o666) -> None:
    """Replace the content of a file: write a temporary file beside it, fsync, rename, fsync the
    folder. `mode` is the file mode before the umask applies. Raises OSError."""
    scratch = temporary_file(file)

    def create(path: str, flags: int) -> int:
        return os.open(path, flags, mode)

    try:
        with open(scratch, "wb", opener=create) as target:
            target.write(content.encode() if isinstance(content, str) else content)
            sync_open(target)
        move_into_place(scratch, file)
    finally:
        scratch.unlink(missing_ok=True)


def move_into_place(scratch: Path, target: Path) -> Path:
    """Rename a finished file or folder and flush the folder entry; returns `target`. A file may
    replace a file. Raises OSError, also if `target` is a folder that is not empty."""
    scratch.replace(target)
    sync(target.parent)
    return target


def append_lines(file: Path, lines: Iterable[str]) -> None:
    """Append lines, each with its line end, and flush them to the disk. Raises OSError."""
    with file.open("a", encoding="utf-8") as target:
        target.writelines(lines)
        sync_open(target)


MOST_BYTES = 64 * 2**20
KEPT_BYTES = 2**20
LOOK_S = 1.0


def shorten(log: Path, most: int = MOST_BYTES, kept: int = KEPT_BYTES) -> bool:
    """Truncate a log longer than `most` bytes to its last `kept` bytes; returns whether it was
    longer. Processes that have it open in append mode continue after the new end."""
    try:
        size = log.stat().st_size
    except FileNotFoundError:
        return False
    if size <= most:
        return False
    with log.open("r+b") as file:
        file.seek(-kept, 2)
        end = file.read()
        file.seek(0)
        file.write(f"[{(size - kept) / 2**20:.0f} MB of earlier output removed]\n".encode() + end)
        file.truncate()
    return True
