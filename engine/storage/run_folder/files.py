"""Check that a run folder has only regular files and folders: no links, pipes or devices.

A run folder may come from anywhere. A link in it would make the engine read or overwrite its
target, so a folder with a link counts as damaged, and nothing in it is opened.
"""

import os
import shutil
import stat
from pathlib import Path

from engine.protocol.problems import StoreError

PROJECT = "project.toml"
FILES = (
    "run.json",
    "run.db",
    "run.db-wal",
    "run.db-shm",
    "run.db-journal",
    "lock",
    "ballast",
    "logs/run.log",
    "replica.json",
    "notes.json",
    "scenarios.jsonl",
    "demonstrations.jsonl",
    "held_out.jsonl",
)
FOLDERS = (".", "logs", "checkpoints", "damaged", "exports", "images", "images/inputs")


def check_run_folder(folder: Path) -> None:
    """Raise StoreError if the run folder links into another project, an entry in it is a symbolic
    link, or a file or folder of a run in it has the wrong type. Missing ones are allowed."""
    try:
        if is_of_another_project(folder):
            raise _foreign(folder, "it is a link into another project")
        if links := [one.name for one in _entries(folder) if one.is_symlink()]:
            raise _foreign(folder, f"{links[0][:80]!a} is a link")
        for name in FOLDERS:
            if not _is(folder / name, stat.S_IFDIR):
                raise _foreign(
                    folder, f"{name if name != '.' else 'it'} is not a folder, or is a link"
                )
        for name in FILES:
            if not _is(folder / name, stat.S_IFREG):
                raise _foreign(folder, f"{name} is not a regular file, or is a link")
    except OSError as error:
        raise _foreign(folder, error.strerror or str(error)) from error


def clear_lock(file: Path) -> None:
    """Delete `file`, the lock of a run folder copied from elsewhere, if it is a folder, link or
    other non-regular file, which no engine can hold. A regular or missing file is left as it is."""
    if _is(file, stat.S_IFREG):
        return
    if stat.S_ISDIR(os.lstat(file).st_mode):
        shutil.rmtree(file)
    else:
        file.unlink()


def is_of_another_project(folder: Path) -> bool:
    """Whether the `runs` folder links to that of another project. A link to a folder outside of any
    project, such as one on a larger disk, does not count."""
    runs = folder.parent
    return runs.is_symlink() and (runs.resolve().parent / PROJECT).exists()


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    if not _is(folder, stat.S_IFDIR) or not folder.exists():
        return []
    with os.scandir(folder) as found:
        return list(found)


def _is(path: Path, kind: int) -> bool:
    """Whether a path does not exist, or has this file type (`stat.S_IF…`)."""
    try:
        return stat.S_IFMT(os.lstat(path).st_mode) == kind
    except FileNotFoundError:
        return True


def _foreign(folder: Path, why: str) -> StoreError:
    return StoreError.of(
        "store.foreign",
        f"This folder was not written by Atelier: {why}.",
        "Remove the folder, or replace the link with its target.",
        where=str(folder),
    )
