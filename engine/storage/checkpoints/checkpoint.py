"""Checkpoints: directories that are whole or absent.

Every file is written and fsynced, the manifest with all hashes comes last, then rename, fsync of
the parent, and only then the database row. A folder without a valid manifest is no checkpoint.
"""

import asyncio
import errno
import json
import os
import shutil
import stat
import time
from pathlib import Path
from typing import Literal, Protocol

from engine.protocol.problems import AtelierError, Refused, StoreError
from engine.protocol.records.runs import Checkpoint
from engine.runtime.files import move_into_place, sha256_of, sync_tree
from engine.runtime.safe_paths import inside
from engine.trust.files import read_regular

FOLDER = "checkpoints"
MANIFEST = "MANIFEST.json"
SCRATCH = ".writing-"
FULL = (errno.ENOSPC, errno.EDQUOT)
ADAPTER = "adapter"
WEIGHTS = "adapter_model.safetensors"
MOST_MANIFEST_BYTES = 2**24
UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, Refused)
"""Exceptions raised by reading a malformed manifest or the files that it names."""
By = Literal["rule", "person", "damage"]
"""Reason of a removal: a retention rule, a person, or files that differ from the manifest."""


class Saveable(Protocol):
    """Interface of a policy that can be saved as a checkpoint."""

    async def save(self, folder: Path) -> None:
        """Write adapter, value head and optimizer state into an empty folder."""
        ...


async def save(
    run_folder: Path,
    step: int,
    policy: Saveable,
    state: dict[str, object],
    metrics: dict[str, float],
) -> Checkpoint:
    """Write the policy as the checkpoint of `step` into folder `checkpoints/step-…` of a run;
    returns its database record, which has `metrics`. `state` (JSON) is kept for the resumption of
    training. Raises StoreError on a disk error; no partial checkpoint is left."""
    parent = run_folder / FOLDER
    parent.mkdir(exist_ok=True)
    scratch = parent / f"{SCRATCH}{step:06d}"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    target = folder_of(run_folder, step)
    try:
        await policy.save(scratch)
        state_file = scratch / "trainer" / "state.json"
        state_file.write_text(json.dumps({"step": step, **state}, indent=1))
        size = await asyncio.to_thread(publish, scratch, target, step)
    except (OSError, AtelierError) as error:
        shutil.rmtree(scratch, ignore_errors=True)  # the space it takes is needed
        raise not_written(error, parent) if isinstance(error, OSError) else error from error
    return record(run_folder, step, size, metrics)


def record(run_folder: Path, step: int, size: int, metrics: dict[str, float]) -> Checkpoint:
    """Make the database record of a checkpoint that exists in the run folder; `size` is in
    bytes."""
    folder = folder_of(run_folder, step)
    return Checkpoint(
        step=step,
        path=f"{FOLDER}/{folder.name}",
        bytes=size,
        at=time.time(),
        metrics=metrics,
        adapter=adapter_hash(folder),
    )


def folder_of(run_folder: Path, step: int) -> Path:
    return run_folder / FOLDER / f"step-{step:06d}"


def adapter_hash(folder: Path) -> str:
    """SHA-256 of the adapter weights of the checkpoint in `folder`, as its manifest states it."""
    return str(_entries(folder)[f"{ADAPTER}/{WEIGHTS}"]["sha256"])


def is_complete(folder: Path) -> bool:
    """Whether all files in a checkpoint's manifest exist with their size; hashes are not
    checked."""
    try:
        entries = _entries(folder).items()
        return all(_own_file(folder, name).st_size == one["bytes"] for name, one in entries)
    except UNREADABLE:
        return False


def verify(folder: Path) -> bool:
    """Whether every file of the manifest is there with its size and hash."""
    try:
        entries = _entries(folder)
        for name in entries:
            _own_file(folder, name)
        return all(matches(folder / name, entry) for name, entry in entries.items())
    except UNREADABLE:
        return False


def _entries(folder: Path) -> dict[str, dict[str, object]]:
    """Files of the manifest by name. Raises one of `UNREADABLE`."""
    if folder.is_symlink():
        raise ValueError("the checkpoint is a link")
    manifest = json.loads(read_regular(inside(folder, MANIFEST), MOST_MANIFEST_BYTES))
    return dict(manifest["files"])


def _own_file(folder: Path, name: str) -> os.stat_result:
    """Return the `lstat` of a file of the checkpoint. Raises OSError, Refused or ValueError unless
    it is a regular file inside the folder."""
    status = inside(folder, name).lstat()
    if not stat.S_ISREG(status.st_mode):
        raise ValueError(f"{name} is not a regular file")
    return status


def newest(run_folder: Path, known: list[Checkpoint]) -> Checkpoint | None:
    """Return the latest of the checkpoints `known` to the database whose files have the right size
    and hash; None if there is none."""
    for checkpoint in sorted(known, key=lambda c: c.step, reverse=True):
        if verify(run_folder / checkpoint.path):
            return checkpoint
    return None


def sweep(run_folder: Path, known: list[Checkpoint]) -> None:
    """Delete all folders of checkpoints except those `known` to the database, which an interrupted
    save may have left."""
    recorded = {Path(one.path).name for one in known}
    for found in (run_folder / FOLDER).glob("*"):
        if found.name not in recorded:
            shutil.rmtree(found)


def not_written(error: OSError, folder: Path) -> StoreError:
    return StoreError.of(
        "store.disk_full" if error.errno in FULL else "checkpoint.not_written",
        f"The checkpoint could not be written: {error.strerror or error}.",
        "Free some space, then resume the run; all steps up to its last checkpoint are kept.",
        where=str(folder),
    )


def publish(scratch: Path, target: Path, step: int) -> int:
    """Write a manifest of its files into folder `scratch`, flush all to disk and move it to
    `target`, replacing that if it exists. Returns the size in bytes."""
    files = sorted(path for path in scratch.rglob("*") if path.is_file())
    entries = {}
    for path in files:
        name = str(path.relative_to(scratch))
        entries[name] = {"bytes": path.stat().st_size, "sha256": sha256_of(path)}
    manifest = scratch / MANIFEST
    manifest.write_text(json.dumps({"schema": 1, "step": step, "files": entries}, indent=1))
    sync_tree(scratch)
    if target.exists():  # recorded by a run that was killed before its row: made anew
        shutil.rmtree(target)
    move_into_place(scratch, target)
    return sum(file.stat().st_size for file in target.rglob("*") if file.is_file())


def matches(file: Path, entry: dict[str, object]) -> bool:
    """Whether a file has size and SHA-256 of its manifest `entry`. Raises OSError if missing."""
    same_size = file.stat().st_size == entry["bytes"]
    return bool(same_size and sha256_of(file) == entry["sha256"])
