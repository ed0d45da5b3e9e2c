"""Publication of an export: whole, at once, or not at all.

Files are written into a scratch folder beside the target, fsynced, listed with hashes in a
manifest, and renamed; a cancelled or failed export leaves nothing.
"""

import contextlib
import errno
import json
import os
import secrets
import shutil
from pathlib import Path
from typing import Any

import psutil

from engine.protocol.problems import ConfigError, Problem, Refused
from engine.protocol.requests.exports import FilesCheck
from engine.runtime.files import move_into_place, sha256_of, sync, sync_tree
from engine.storage.checkpoints.checkpoint import MANIFEST, matches

SCRATCH = ".atelier-export-"
SPARE_BYTES = 32 * 2**20
"""Disk space reserved for tokenizer, model card and reports."""

Manifest = dict[str, dict[str, Any]]


class Place:
    """Target and scratch folder of an export. Create it with `claim`, end it with `clear`."""

    def __init__(self, target: Path, scratch: Path) -> None:
        self.target = target
        self.scratch = scratch
        self._made = [folder for folder in target.parents if not folder.exists()]
        self.out = scratch / "out"
        self.work = scratch / "work"

    @classmethod
    def claim(cls, out: str, need_bytes: int) -> "Place":
        """Create a scratch folder beside folder `out` for an export to it. Raises ConfigError if
        `out` is relative, not empty or not writable, Refused if the disk has less than `need_bytes`
        free."""
        target = Path(out).expanduser()
        if not target.is_absolute():
            raise ConfigError.of("export.relative", f"{out} is not an absolute path.", where="out")
        if (target.is_dir() and any(target.iterdir())) or target.is_file():
            raise ConfigError.of(
                "export.not_empty",
                "The folder for the export exists and is not empty.",
                "Choose a new folder: an export never overwrites files.",
                where=str(target),
            )
        try:
            check_room(next(p for p in target.parents if p.exists()), need_bytes)
            _sweep(target.parent)
            scratch = target.parent / f"{SCRATCH}{os.getpid()}-{secrets.token_hex(6)}"
            place = cls(target, scratch)
            for folder in (place.out, place.work):
                folder.mkdir(parents=True)
        except OSError as error:
            raise ConfigError.of(
                "export.not_writable",
                f"The export cannot be written to this folder: {error.strerror}.",
                "Choose a folder that you may write to.",
                where=str(target),
            ) from error
        return place

    def publish(self, known: Manifest) -> int:
        """Write the manifest and move the export to its target. Files in `known` are not hashed
        again. Returns the size in bytes."""
        write_manifest(self.out, known)
        sync_tree(self.out)
        size = sum(file.stat().st_size for file in self.out.rglob("*") if file.is_file())
        move_into_place(self.out, self.target)
        return size

    def clear(self) -> None:
        """Delete the scratch folder, and parent folders created for it that are empty."""
        shutil.rmtree(self.scratch, ignore_errors=True)
        for folder in self._made:
            with contextlib.suppress(OSError):  # somebody has put something into it
                folder.rmdir()


def check_room(folder: Path, need_bytes: int) -> None:
    """Raise Refused if the disk of a folder has less free space than `need_bytes` and a reserve."""
    need, free = need_bytes + SPARE_BYTES, shutil.disk_usage(folder).free
    if free < need:
        raise Refused.of(
            "export.no_room",
            f"This export needs {need / 1e6:.0f} MB and the disk has {free / 1e6:.0f} MB free.",
            "Free some space, or choose a folder on another disk.",
            where=str(folder),
        )


def manifest_of(folder: Path, known: Manifest | None = None) -> Manifest:
    """Return size and SHA-256 of every file in a folder but the manifest, after fsync. Entries in
    `known` are reused without reading."""
    entries: Manifest = dict(known or {})
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and name not in {MANIFEST, *entries}:
            sync(path)
            entries[name] = {"bytes": path.stat().st_size, "sha256": sha256_of(path)}
    return entries


def write_manifest(folder: Path, known: Manifest) -> None:
    entries = {"schema": 1, "files": manifest_of(folder, known)}
    (folder / MANIFEST).write_text(json.dumps(entries, indent=1) + "\n")


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest of an export. Raises ConfigError if the folder has none."""
    try:
        files: Manifest = json.loads((folder / MANIFEST).read_text())["files"]
        return files
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError.of(
            "export.no_manifest",
            f"This is not an export of Atelier: its {MANIFEST} cannot be read.",
            where=str(folder),
            detail=str(error),
        ) from error


def check_files(folder: Path, manifest: Manifest) -> FilesCheck:
    """Compare every file of a manifest with its size and hash."""
    wrong = [name for name, entry in manifest.items() if not _is_whole(folder / name, entry)]
    size = sum(int(entry["bytes"]) for entry in manifest.values())
    return FilesCheck(files=len(manifest), bytes=size, wrong=wrong)


def disk_problem(error: BaseException) -> Problem | None:
    """Return the problem for an error caused by a full disk, or None. safetensors raises an error
    of its own instead of OSError."""
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    if not full and f"os error {errno.ENOSPC}" not in str(error):
        return None
    return Problem(
        code="export.disk_full",
        message="The disk is full: partial files of the export were deleted.",
        hint="Free some space, or choose a folder on another disk.",
        detail=str(error),
    )


def _sweep(folder: Path) -> None:
    for scratch in folder.glob(f"{SCRATCH}*"):
        owner = scratch.name.removeprefix(SCRATCH).partition("-")[0]
        if owner.isdigit() and not psutil.pid_exists(int(owner)):
            shutil.rmtree(scratch, ignore_errors=True)


def _is_whole(file: Path, entry: dict[str, Any]) -> bool:
    return os.path.isfile(file) and matches(file, entry)
