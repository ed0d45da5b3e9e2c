"""Files of a run that lies on another engine come here, resumed, checked, whole or not at all."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

from engine.client import EngineClient
from engine.protocol.problems import StoreError
from engine.protocol.sync import FileEntry
from engine.sync.manifest import entry_of

PARTS = ".arriving"
"""In the run's folder: what has come and is not whole."""
Progress = Callable[[int, int], None]


async def fetch(
    client: EngineClient, run_id: str, folder: Path, below: str, progress: Progress
) -> list[Path]:
    """The file `below`, or all in that folder of the run.

    Raises LaunchError where the way is cut (call it again: it goes on), StoreError where one keeps
    arriving damaged.
    """
    wanted = (await client.run_files(run_id, below)).files
    total, done = sum(file.bytes for file in wanted), 0

    def came(count: int) -> None:
        nonlocal done
        done += count
        progress(done, total)

    for file in wanted:
        target = folder / file.path
        if target.is_file() and await asyncio.to_thread(entry_of, target, file.path) == file:
            came(file.bytes)
            continue
        await _fetch_one(client, run_id, folder, file, came)
    return [folder / file.path for file in wanted]


async def _fetch_one(
    client: EngineClient, run_id: str, folder: Path, file: FileEntry, came: Callable[[int], None]
) -> None:
    part = folder / PARTS / file.sha256
    part.parent.mkdir(exist_ok=True)
    for _ in range(2):
        await client.fetch_file(run_id, file.path, part, came)
        found = await asyncio.to_thread(entry_of, part, file.path)
        if found.sha256 == file.sha256:
            target = folder / file.path
            target.parent.mkdir(parents=True, exist_ok=True)
            part.chmod(0o755 if file.executable else 0o644)
            with part.open("rb") as whole:
                os.fsync(whole.fileno())
            part.replace(target)
            return
        part.unlink()
    raise StoreError.of(
        "sync.damaged",
        f"{file.path} keeps arriving damaged.",
        "It may be changing on the server: try again when the run rests.",
    )
