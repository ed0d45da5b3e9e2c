"""Download of a run's files from another engine: resumed, verified, complete or not at all.

The other engine lists the files. Names must be relative paths (`protocol/identifiers`) below the
requested path and never files that turn a folder into a local run. Modes are set here. Sizes are
bounded by the announced size, by the caller's limit and by the free space of this disk.
"""

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from weakref import WeakValueDictionary

from engine.client import EngineClient
from engine.protocol.problems import Refused, StoreError
from engine.protocol.requests.sync import FileEntry
from engine.remote.sync.manifest import entry_of
from engine.runtime.files import move_into_place, sync_open
from engine.runtime.safe_paths import FILE_MODE, inside, make_parents, open_to_write, outside

PARTS = ".arriving"
"""Subfolder of the run for incomplete files."""
OURS = ("lock", "ballast", "replica.json", PARTS)
"""Names at the top of a run folder that only this machine writes and that are never downloaded (the
database neither)."""
DATABASE = "run.db"
SPEC = "run.json"
"""File that is downloaded only if it is requested by name, when the mirror is created."""
MOST_RUN_BYTES = 2**41
"""Size limit of all files of a run."""
ROOM_BYTES = 2**28
"""Bytes that must stay free on this disk."""
Progress = Callable[[int, int], None]
_turns: WeakValueDictionary[Path, asyncio.Lock] = WeakValueDictionary()


async def fetch(
    client: EngineClient,
    run_id: str,
    folder: Path,
    below: str,
    progress: Progress,
    most_bytes: int = MOST_RUN_BYTES,
) -> list[Path]:
    """Download from a run on the server into `folder`: the file `below`, or all files in that
    folder of the run; `run.json` only if it is requested by name. `progress` receives bytes done
    and in total. Returns the local paths.

    Raises LaunchError if the connection is lost (the next call resumes), Refused if the other
    engine lists files that were not requested or are larger than `most_bytes`, StoreError if a file
    repeatedly arrives damaged or the disk is full."""
    listed = (await client.run_files(run_id, below)).files
    wanted = [file for file in listed if below or file.path != SPEC]
    _check(wanted, below, most_bytes)
    targets = [inside(folder, file.path) for file in wanted]
    total, done = sum(file.bytes for file in wanted), 0
    _check_room(folder, total)

    def came(count: int) -> None:
        nonlocal done
        done += count
        progress(done, total)

    try:
        async with turn(folder):
            for file, target in zip(wanted, targets, strict=True):
                if await asyncio.to_thread(_is_here, target, file):
                    came(file.bytes)
                else:
                    await _fetch_one(client, run_id, folder, file, came)
    except OSError as error:
        raise StoreError.of(
            "sync.not_written",
            f"A file of the run could not be written here: {error.strerror}.",
            "Check free space and permissions of the folder; received data is kept.",
            where=str(error.filename or folder),
        ) from error
    return targets


def turn(folder: Path) -> asyncio.Lock:
    """Lock of a run folder: downloads into it take turns, since equal files have one part."""
    return _turns.setdefault(folder.resolve(), asyncio.Lock())


def _check(wanted: list[FileEntry], below: str, most_bytes: int) -> None:
    seen: set[str] = set()
    for file in wanted:
        if below and file.path != below and not file.path.startswith(f"{below}/"):
            raise outside(file.path, f"only {below} was requested")
        first = file.path.partition("/")[0].casefold()
        ours = first in OURS or first.startswith(DATABASE) or (first == SPEC and below != SPEC)
        if ours:
            raise outside(file.path, "only this machine may write that file of a run")
        folded = file.path.casefold()
        if folded in seen:
            raise outside(file.path, "it is listed twice")
        seen.add(folded)
    total = sum(file.bytes for file in wanted)
    if total > most_bytes:
        raise Refused.of(
            "sync.too_much",
            f"The server announces {total / 1e9:.1f} GB, but at most {most_bytes / 1e9:.1f} GB "
            "are expected.",
            "Nothing was fetched. Check the run on the server.",
        )


def _check_room(folder: Path, total: int) -> None:
    """Check the free space of the disk. Raises StoreError."""
    free = shutil.disk_usage(folder).free
    if total + ROOM_BYTES > free:
        raise StoreError.of(
            "sync.no_room",
            f"{total / 1e9:.1f} GB must still be downloaded, but this disk has {free / 1e9:.1f} "
            "GB free.",
            "Free some space; received data is kept.",
            where=str(folder),
        )


def _is_here(target: Path, file: FileEntry) -> bool:
    if not target.is_file() or target.stat().st_size != file.bytes:
        return False
    return entry_of(target, file.path).sha256 == file.sha256


async def _fetch_one(
    client: EngineClient, run_id: str, folder: Path, file: FileEntry, came: Callable[[int], None]
) -> None:
    part = inside(folder, f"{PARTS}/{file.sha256}")
    make_parents(folder, part)
    for _ in range(2):
        if await _arrives(client, run_id, part, file, came):
            target = inside(folder, file.path)
            make_parents(folder, target)
            part.chmod(FILE_MODE)
            move_into_place(part, target)
            return
        part.unlink()
    raise StoreError.of(
        "sync.damaged",
        f"{file.path} was damaged in every download.",
        "The file may be changing on the server: pause the run and try again.",
    )


async def _arrives(
    client: EngineClient, run_id: str, part: Path, file: FileEntry, came: Callable[[int], None]
) -> bool:
    """Continue the download of a file where it stopped; returns whether its size and hash are as
    announced."""
    with os.fdopen(open_to_write(part, append=True), "ab") as target:
        begin = target.tell()
        if begin > file.bytes:
            return False
        came(begin)
        if begin < file.bytes:
            await client.fetch_file(run_id, file.path, target, begin, file.bytes, came)
        sync_open(target)
    return (await asyncio.to_thread(entry_of, part, file.path)).sha256 == file.sha256
