"""Mirror of one run: requests changes from the remote engine, stores them in the replica, notifies.

The owner of the connection starts `run`, and starts it again after a reconnect. Each time it
continues after the last event of the replica.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import aclosing

from engine.client.sync import Changes, ReplicaCalls
from engine.protocol.base import BaseEvent
from engine.protocol.problems import StoreError
from engine.remote.mirror.pages import MOST_BYTES
from engine.remote.mirror.replica import Replica
from engine.runtime.closing import cancel

WAIT_S = 15.0
"""Seconds that the remote engine may hold a request for changes."""
FIRST_BYTES = 2**18
"""First and smallest page size in bytes; small, so that an unreliable connection makes progress."""
IDLE_S = 1.0
"""Minimum pause in seconds after an empty page that arrived immediately."""
PAGE_S = 1.0
"""Seconds that a request should take at most; the page size is halved or doubled accordingly."""


class Mirror:
    """Mirror of one run. `announce` is called on the event loop after every commit (with None) and
    for every progress tick."""

    def __init__(
        self,
        far: ReplicaCalls,
        run_id: str,
        replica: Replica,
        announce: Callable[[BaseEvent | None], None],
    ) -> None:
        self._far = far
        self._run_id = run_id
        self._replica = replica
        self._announce = announce
        self._most = FIRST_BYTES
        self.known = replica.seq
        """`seq` of the last event of the run that the remote engine has reported."""

    @property
    def behind(self) -> int:
        """Number of events that the remote engine has reported and this mirror has not stored
        yet."""
        return max(0, self.known - self._replica.seq)

    async def run(self) -> None:
        """Store the run's new events and pass on its progress ticks until cancelled. Raises
        LaunchError if the remote engine is unreachable, Refused if it refuses a request, StoreError
        if a page of events cannot be stored."""
        both = [asyncio.create_task(self._pull()), asyncio.create_task(self._pass_ticks())]
        try:
            await asyncio.gather(*both)
        finally:
            await cancel(*both)

    async def catch_up(self) -> None:
        """Store all events that the server has now, without progress ticks. Raises like `run`."""
        while (changes := await self._ask(self._replica.seq, 0.0)).page:
            await self._store(changes)

    async def _pull(self) -> None:
        """Store pages of changes; the next page is requested while one is being stored."""
        coming = asyncio.create_task(self._ask(self._replica.seq))
        try:
            while True:
                changes = await coming
                coming = asyncio.create_task(self._ask(changes.last))
                if changes.page:
                    await self._store(changes)
        finally:
            await cancel(coming)

    async def _store(self, changes: Changes) -> None:
        """Store a page. Raises StoreError if it cannot be stored or adds no events."""
        before = self._replica.seq
        stored = await asyncio.to_thread(self._replica.apply, changes.page)
        if stored == before or stored != changes.last:
            raise StoreError.of(
                "replica.no_progress",
                f"The server sent events up to {changes.last}, but only those up to {stored} were "
                "stored here.",
                "The changes are requested again. If this repeats, update Atelier on both machines "
                "to the same version.",
            )
        self._announce(None)

    async def _ask(self, after: int, wait_s: float = WAIT_S) -> Changes:
        requested_at = time.monotonic()
        changes = await self._far.changes(self._run_id, after, wait_s, self._most)
        if wait_s and not changes.page and time.monotonic() - requested_at < IDLE_S:
            await asyncio.sleep(IDLE_S)
        self.known = max(self.known, changes.known)
        if changes.last < changes.known:
            slow = time.monotonic() - requested_at > PAGE_S
            wanted = self._most // 2 if slow else self._most * 2
            self._most = min(max(wanted, FIRST_BYTES), MOST_BYTES)
        return changes

    async def _pass_ticks(self) -> None:
        async with aclosing(self._far.ticks(self._run_id)) as ticks:
            async for tick in ticks:
                self._announce(tick)
