"""Calls from the user's machine to an engine on a server: upload of folders, changes and files of
runs."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import httpx

from engine.client.transport import (
    MOST_REFUSAL_BYTES,
    Transport,
    bad_answer,
    blocks_of,
    read_body,
    refusal,
)
from engine.protocol.events.run import ProgressTicked, decode
from engine.protocol.problems import LaunchError
from engine.protocol.requests.home import HomeRequest, HomeRequestList, HomeResponse, Lease, Leased
from engine.protocol.requests.sync import KNOWN, LAST, Begun, Manifest, Missing, Synced, SyncFolder

MOST_PAGE_BYTES = 2**28
MOST_TICK_BYTES = 2**20
MOST_SEQ = 2**53
SLACK_S = 20.0
"""Seconds that a response may take beyond its allowed waiting time."""


@dataclass(frozen=True)
class Changes:
    """Page of changes as sent by the engine."""

    page: bytes
    """Compressed page; empty if no event arrived in time."""
    last: int
    """`seq` of the last event in the page; for an empty page, the requested one."""
    known: int
    """`seq` of the last event of the run."""


class ReplicaCalls(Transport):
    """Calls with which a mirror (local copy of a remote run) follows the run."""

    async def changes(
        self, run_id: str, after: int, wait: float = 0.0, most: int = 2**24
    ) -> Changes:
        """Page of a run's events with `seq` above `after` and their database rows, about `most`
        bytes before compression. Waits up to `wait` (at most 20) seconds for the first event; empty
        if none arrives."""
        response = await self._send(
            "GET",
            f"/runs/{run_id}/changes",
            params={"after": after, "wait": wait, "most": most},
            timeout=httpx.Timeout(wait + SLACK_S, connect=5.0),
            most_bytes=MOST_PAGE_BYTES,
        )
        if response.status_code == httpx.codes.NO_CONTENT:
            return Changes(b"", after, _seq(response, KNOWN, after))
        return Changes(response.content, _seq(response, LAST), _seq(response, KNOWN, after))

    async def ticks(self, run_id: str) -> AsyncGenerator[ProgressTicked, None]:
        """Yield progress ticks, not stored events, until the engine closes the stream or stops
        responding."""
        path = f"/runs/{run_id}/ticks"
        async with aclosing(self._streamed(path, most_line_bytes=MOST_TICK_BYTES)) as lines:
            async for line in lines:
                try:
                    tick = decode(line)
                except ValueError as error:
                    raise LaunchError.of(
                        "engine.bad_answer",
                        "The engine sent an invalid progress message.",
                        "Update Atelier on both machines to the same version.",
                        where=path,
                        detail=str(error)[:2000],
                    ) from error
                if isinstance(tick, ProgressTicked):
                    yield tick


def _seq(response: httpx.Response, header: str, otherwise: int | None = None) -> int:
    """Event number in a header. Raises LaunchError if it is invalid."""
    text = response.headers.get(header, "" if otherwise is None else str(otherwise))
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) < MOST_SEQ):
        raise bad_answer(response, f"the header {header} does not contain an event number")
    return int(text)


Progress = Callable[[int], None]
COMMITTING_S = 600.0
BLOCK = 2**18


class SyncCalls(Transport):
    """Calls for uploads and downloads; an interrupted transfer resumes when it is called again."""

    async def missing(self, request: SyncFolder) -> Missing:
        """Hashes of file contents that have to be uploaded before `commit`."""
        return await self._ask("POST", "/sync/missing", Missing, body=request, timeout=COMMITTING_S)

    async def commit(self, request: SyncFolder) -> Synced:
        """Make the server's folder match the manifest. Raises Refused if contents are missing."""
        return await self._ask("POST", "/sync/commit", Synced, body=request, timeout=COMMITTING_S)

    async def send_content(
        self, file: Path, sha256: str, size: int, sent: Callable[[int], None]
    ) -> None:
        """Upload a file from where an earlier upload stopped; `sent` is called with increments in
        bytes, the first for the earlier part. The engine verifies the file. Raises Refused if the
        file has changed since it was hashed."""
        path = f"/sync/contents/{sha256}"
        offset = (await self._ask("GET", path, Begun)).bytes
        sent(offset)

        async def blocks() -> AsyncIterator[bytes]:
            with file.open("rb") as source:
                source.seek(offset)
                while block := await asyncio.to_thread(source.read, BLOCK):
                    yield block
                    sent(len(block))

        params = {"offset": offset, "bytes": size}
        await self._send("PUT", path, params=params, content=blocks(), timeout=None)

    async def lease(self, request: Lease) -> Leased:
        """Take or renew this machine's lease of the remote engine, which serves one user's machine
        at a time. Raises Refused if another machine has the lease."""
        return await self._ask("POST", "/lease", Leased, body=request)

    async def home_requests(self, wait_s: float) -> list[HomeRequest]:
        """New requests of remote runs to this machine (such as judge calls that need its API keys),
        each returned once; waits up to `wait_s` seconds for the first."""
        page = await self._ask("GET", "/home-requests", HomeRequestList, params={"wait": wait_s})
        return page.requests

    async def answer_home_request(self, request_id: str, response: HomeResponse) -> None:
        await self._send(
            "POST", f"/home-requests/{request_id}", json=response.model_dump(mode="json")
        )

    async def hand_over(self, run_id: str) -> None:
        """Delete the server's copy of a run that has moved to this machine. Raises Refused while
        the run is active."""
        await self._send("POST", f"/runs/{run_id}/hand_over")

    async def forget_files(self, run_id: str, below: str) -> None:
        """Delete the remote run's exports in folder `below`, which were made for download."""
        await self._send("DELETE", f"/runs/{run_id}/files", params={"below": below})

    async def run_files(self, run_id: str, below: str) -> Manifest:
        """Files of a run in folder `below` (empty: all), with hashes; never its database."""
        path, params = f"/runs/{run_id}/files", {"below": below}
        return await self._ask("GET", path, Manifest, params=params, timeout=COMMITTING_S)

    async def fetch_file(
        self, run_id: str, path: str, target: BinaryIO, begin: int, size: int, came: Progress
    ) -> None:
        """Write the run's file from byte `begin` on to `target`; `size` is its announced size, and
        `came` receives the size of each block. Raises LaunchError if the engine sends more than
        `size` bytes."""
        left = size - begin
        params: dict[str, str | int] = {"path": path, "offset": begin}
        timeout = httpx.Timeout(30.0)
        url = f"/runs/{run_id}/file"
        async with self._response("GET", url, params=params, timeout=timeout) as response:
            if response.is_error:
                raise refusal(response, await read_body(response, MOST_REFUSAL_BYTES))
            async with aclosing(blocks_of(response)) as blocks:
                async for block in blocks:
                    if len(block) > left:
                        words = f"it is longer than the announced {size} bytes"
                        raise bad_answer(response, words)
                    left -= len(block)
                    await asyncio.to_thread(target.write, block)
                    came(len(block))
