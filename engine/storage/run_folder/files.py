"""Files of a run folder: its own, never links to other places, pipes or devices.

A run folder may come from anywhere. A link in it would have the engine read or overwrite whatever
it points to, so one with a link is damaged, and nothing in it is opened.
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
    "scenarios.jsonl",
    "demonstrations.jsonl",
    "held_out.jsonl",
)
FOLDERS = (".", "logs", "checkpoints", "damaged", "exports")


def check_run_folder(folder: Path) -> None:
    """Raises StoreError where the folder, or something in it, is a link or of another kind than the
    engine makes."""
    try:
        if is_of_another_project(folder):
            raise _foreign(folder, "its folder is a link into another project")
        if links := [one.name for one in _entries(folder) if one.is_symlink()]:
            raise _foreign(folder, f"{links[0][:80]!a} is a link")
        for name in FOLDERS:
            if not _is(folder / name, stat.S_IFDIR):
                raise _foreign(
                    folder, f"{name if name != '.' else 'it'} is not a folder of its own"
                )
        for name in FILES:
            if not _is(folder / name, stat.S_IFREG):
                raise _foreign(folder, f"{name} is not a regular file of its own")
    except OSError as error:
        raise _foreign(folder, error.strerror or str(error)) from error


def clear_lock(file: Path) -> None:
    """Remove what stands in the place of a lock and is no file: no engine holds it."""
    if _is(file, stat.S_IFREG):
        return
    if stat.S_ISDIR(os.lstat(file).st_mode):
        shutil.rmtree(file)
    else:
        file.unlink()


def is_of_another_project(folder: Path) -> bool:
    """Whether the runs of a project are a link to those of another; a link to a folder outside of
    any project, such as one on a larger disk, is none."""
    runs = folder.parent
    return runs.is_symlink() and (runs.resolve().parent / PROJECT).exists()


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """Entries of the folder; none where it is not a folder."""
    if not _is(folder, stat.S_IFDIR) or not folder.exists():
        return []
    with os.scandir(folder) as found:
        return list(found)


def _is(path: Path, kind: int) -> bool:
    """Whether nothing is there, or something of this kind."""
    try:
        return stat.S_IFMT(os.lstat(path).st_mode) == kind
    except FileNotFoundError:
        return True


def _foreign(folder: Path, why: str) -> StoreError:
    return StoreError.of(
        "store.foreign",
        f"This is not a run as Atelier writes it: {why}.",
        "Remove it, or replace the link by what it points to.",
        where=str(folder),
    )
