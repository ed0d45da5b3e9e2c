"""Upload of a local folder to another engine, whose folder then has the same files."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from engine.client import EngineClient
from engine.protocol.problems import LaunchError, Refused
from engine.protocol.requests.sync import Synced, SyncFolder

Progress = Callable[[int, int], None]
"""Callback with bytes sent and total bytes."""
DAMAGED = {"sync.damaged", "sync.other_place", "sync.incomplete"}
TRIES = 3


async def push(
    client: EngineClient, source: Path, request: SyncFolder, progress: Progress
) -> Synced:
    """Upload the file contents of folder `source` that the server lacks, then commit the folder
    there; `progress` receives bytes done and in total. Raises LaunchError if the connection is lost
    (the next call resumes), Refused if a file keeps changing meanwhile."""
    for attempt in range(TRIES):
        try:
            return await _push(client, source, request, progress)
        except Refused as error:
            if error.problem.code not in DAMAGED or attempt == TRIES - 1:
                raise
            await asyncio.sleep(0.2)
    raise AssertionError("the last try returns or raises")


async def _push(
    client: EngineClient, source: Path, request: SyncFolder, progress: Progress
) -> Synced:
    lacking = await client.missing(request)
    files = {file.sha256: file for file in request.manifest.files}
    done = 0

    def sent(count: int) -> None:
        nonlocal done
        done += count
        progress(done, lacking.bytes)

    for sha256 in lacking.sha256:
        if sha256 not in files:
            raise LaunchError.of(
                "engine.bad_answer",
                "The server requested a file that is not part of the upload.",
                "Only files of the upload are sent. Check what runs on that server.",
            )
        file = files[sha256]
        await client.send_content(source / file.path, sha256, file.bytes, sent)
    return await client.commit(request)
