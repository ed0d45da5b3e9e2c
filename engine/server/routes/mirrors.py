"""Routes for mirrors of a run: pages of changes, and progress ticks."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from engine.protocol.requests.sync import KNOWN, LAST
from engine.remote.mirror.pages import MOST_BYTES, last_seq, read_page
from engine.server.bodies import Routes, number_of
from engine.server.composition import Services
from engine.server.event_stream import HEARTBEAT_S, Subscriber, ticks
from engine.storage.run_folder.run import DATABASE

MOST_WAIT_S = 20.0
GATHER_S = 0.03
"""Seconds from the first change to its page, so that changes in quick succession share a page."""
MANY = 1000
"""Number of waiting events from which a page is sent without that pause."""


class MirrorRoutes:
    def __init__(self, services: Services) -> None:
        self.library, self.broadcast = services.library, services.broadcast
        self.touch = services.touch

    def routes(self) -> Routes:
        return [
            ("GET", "/runs/{run}/changes", self.changes),
            ("GET", "/runs/{run}/ticks", self.ticks),
        ]

    async def changes(self, request: Request) -> Response:
        """Respond with a page of a run's events after `after` (a `seq`) and their rows, for a
        mirror; 204 if there are none within `wait` seconds."""
        run_id = request.path_params["run"]
        file = self.library.folder(run_id) / DATABASE
        after = int(number_of(request, "after"))
        most = min(int(number_of(request, "most", MOST_BYTES)), MOST_BYTES)
        end = time.monotonic() + min(number_of(request, "wait"), MOST_WAIT_S)
        async with self.broadcast.subscribe(run_id) as subscriber:
            if await self._has_more(subscriber, file, after, end):
                page = await asyncio.to_thread(read_page, file, run_id, after, most_bytes=most)
            else:
                page = None
        self.touch()
        if page is None:
            known = await asyncio.to_thread(last_seq, file)
            return Response(status_code=204, headers={KNOWN: str(known)})
        headers = {LAST: str(page.last), KNOWN: str(page.known)}
        return Response(page.content, media_type="application/octet-stream", headers=headers)

    async def _has_more(self, subscriber: Subscriber, file: Path, after: int, end: float) -> bool:
        """Wait for events after `after`, and `GATHER_S` for more; False if none came."""
        while not self.broadcast.closing:
            subscriber.woken.clear()
            behind = await asyncio.to_thread(last_seq, file) - after
            if behind > 0:
                if behind < MANY:
                    await asyncio.sleep(min(GATHER_S, max(0.0, end - time.monotonic())))
                return True
            left = end - time.monotonic()
            if left <= 0:
                return False
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(subscriber.woken.wait(), min(left, HEARTBEAT_S))
        return False

    async def ticks(self, request: Request) -> Response:
        run_id = request.path_params["run"]
        self.library.folder(run_id)

        async def lines() -> AsyncIterator[str]:
            async for line in ticks(self.broadcast, run_id):
                self.touch()
                yield line

        return StreamingResponse(lines(), media_type="text/event-stream")
