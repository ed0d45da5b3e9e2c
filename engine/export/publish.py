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
"""Reserve for tokenizer, model card and reports."""

Manifest = dict[str, dict[str, Any]]


class Place:
    """A target folder and the scratch beside it. Make it with `claim`, end it with `clear`."""

    def __init__(self, target: Path, scratch: Path) -> None:
        self.target = target
        self.scratch = scratch
        self._made = [folder for folder in target.parents if not folder.exists()]
        self.out = scratch / "out"
        self.work = scratch / "work"

    @classmethod
    def claim(cls, out: str, need_bytes: int) -> "Place":
        """Raises ConfigError for a target that cannot be one, Refused where the disk is short."""
        target = Path(out).expanduser()
        if not target.is_absolute():
            raise ConfigError.of("export.relative", f"{out} is not an absolute path.", where="out")
        if (target.is_dir() and any(target.iterdir())) or target.is_file():
            raise ConfigError.of(
                "export.not_empty",
                "The folder of the export exists and is not empty.",
                "Choose a new one: nothing is ever overwritten.",
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
                f"The export cannot be written there: {error.strerror}.",
                "Name a folder that you may write to.",
                where=str(target),
            ) from error
        return place

    def publish(self, known: Manifest) -> int:
        """Make it appear under its name, with a manifest of what is `known` and of what came to it;
        returns its bytes."""
        write_manifest(self.out, known)
        sync_tree(self.out)
        size = sum(file.stat().st_size for file in self.out.rglob("*") if file.is_file())
        move_into_place(self.out, self.target)
        return size

    def clear(self) -> None:
        """Remove the scratch, and the folders above that were made for it; what is published stays,
        and what keeps it."""
        shutil.rmtree(self.scratch, ignore_errors=True)
        for folder in self._made:
            with contextlib.suppress(OSError):  # somebody has put something into it
                folder.rmdir()


def check_room(folder: Path, need_bytes: int) -> None:
    """Raises Refused where the disk of a folder has not so many bytes left."""
    need, free = need_bytes + SPARE_BYTES, shutil.disk_usage(folder).free
    if free < need:
        raise Refused.of(
            "export.no_room",
            f"This export takes {need / 1e6:.0f} MB and the disk has {free / 1e6:.0f} MB free.",
            "Free some space, or name a folder on another disk.",
            where=str(folder),
        )


def manifest_of(folder: Path, known: Manifest | None = None) -> Manifest:
    """Every file but the manifest, with its bytes and sha256; each is on the disk by then.

    What is `known` is not read again.
    """
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
    """Raises ConfigError where the folder is no export of ours."""
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
    """Every file of a manifest against its hash."""
    wrong = [name for name, entry in manifest.items() if not _is_whole(folder / name, entry)]
    size = sum(int(entry["bytes"]) for entry in manifest.values())
    return FilesCheck(files=len(manifest), bytes=size, wrong=wrong)


def disk_problem(error: BaseException) -> Problem | None:
    """Problem where the disk filled up while files were written; None for other errors. safetensors
    raises its own error type for it, not OSError."""
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    if not full and f"os error {errno.ENOSPC}" not in str(error):
        return None
    return Problem(
        code="export.disk_full",
        message="The disk filled up while the export was written; nothing of it is left behind.",
        hint="Free some space, or name a folder on another disk.",
        detail=str(error),
    )


def _sweep(folder: Path) -> None:
    """Remove what a process left that was killed while it exported."""
    for scratch in folder.glob(f"{SCRATCH}*"):
        owner = scratch.name.removeprefix(SCRATCH).partition("-")[0]
        if owner.isdigit() and not psutil.pid_exists(int(owner)):
            shutil.rmtree(scratch, ignore_errors=True)


def _is_whole(file: Path, entry: dict[str, Any]) -> bool:
    return os.path.isfile(file) and matches(file, entry)
