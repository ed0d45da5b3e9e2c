"""Checkpoints: directories that are whole or absent.

Every file is written and fsynced, the manifest with all hashes comes last, then rename, fsync of
the parent, and only then the database row. What has no valid manifest is no checkpoint.
"""

import hashlib
import json
import os
import shutil
import time
from pathlib import Path

from engine.policy.base import Policy
from engine.protocol.records import Checkpoint

FOLDER = "checkpoints"
MANIFEST = "MANIFEST.json"
SCRATCH = ".writing-"


async def save(
    run_folder: Path, step: int, policy: Policy, state: dict[str, object], metrics: dict[str, float]
) -> Checkpoint:
    """Publish the policy's adapter and optimizer as `checkpoints/step-000012`."""
    parent = run_folder / FOLDER
    parent.mkdir(exist_ok=True)
    scratch = parent / f"{SCRATCH}{step:06d}"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    await policy.save(scratch)
    (scratch / "trainer" / "state.json").write_text(json.dumps({"step": step, **state}, indent=1))
    target = parent / f"step-{step:06d}"
    size = _publish(scratch, target, step)
    return Checkpoint(
        step=step,
        path=f"{FOLDER}/{target.name}",
        bytes=size,
        at=time.time(),
        metrics=metrics,
    )


def verify(folder: Path) -> bool:
    """Whether every file of the manifest is there with its size and hash."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
        return all(matches(folder / name, entry) for name, entry in manifest["files"].items())
    except (OSError, ValueError, KeyError, TypeError):
        return False


def newest(run_folder: Path, known: list[Checkpoint]) -> Checkpoint | None:
    """The latest recorded checkpoint that verifies; damaged ones are passed over."""
    for checkpoint in sorted(known, key=lambda c: c.step, reverse=True):
        if verify(run_folder / checkpoint.path):
            return checkpoint
    return None


def sweep(run_folder: Path) -> None:
    """Remove what an interrupted save has left."""
    for scratch in (run_folder / FOLDER).glob(f"{SCRATCH}*"):
        shutil.rmtree(scratch)


def _publish(scratch: Path, target: Path, step: int) -> int:
    files = sorted(path for path in scratch.rglob("*") if path.is_file())
    entries = {}
    for path in files:
        fsync(path)
        name = str(path.relative_to(scratch))
        entries[name] = {"bytes": path.stat().st_size, "sha256": sha256_of(path)}
    manifest = scratch / MANIFEST
    manifest.write_text(json.dumps({"schema": 1, "step": step, "files": entries}, indent=1))
    fsync(manifest)
    for folder in [path for path in scratch.rglob("*") if path.is_dir()] + [scratch]:
        fsync(folder)
    if target.exists():  # recorded by a run that was killed before its row: made anew
        shutil.rmtree(target)
    scratch.rename(target)
    fsync(target.parent)
    return sum(file.stat().st_size for file in target.rglob("*") if file.is_file())


def fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def matches(file: Path, entry: dict[str, object]) -> bool:
    """Whether a file has the size and hash of its manifest entry. Raises OSError without it."""
    same_size = file.stat().st_size == entry["bytes"]
    return bool(same_size and sha256_of(file) == entry["sha256"])


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
