"""Keeps a replica up to date with its run: asks the far engine for changes, stores them, tells.

Whoever owns the way to the far engine starts `run`, and starts it again when the way is open again:
everything goes on from what the replica has.
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
"""Of the first page. A line that is cut off all the time still brings some of these …"""
IDLE_S = 1.0
"""Before an engine that says at once that there is nothing is asked again."""
PAGE_S = 1.0
"""… and one that does not is asked for pages that take about so long."""


class Mirror:
    """Mirror of one run. `announce` is called on the loop for every commit (None) and every
    tick."""

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
        """The last event of the run, as far as the far engine has said."""

    @property
    def behind(self) -> int:
        """Events that are known of and not here yet."""
        return max(0, self.known - self._replica.seq)

    async def run(self) -> None:
        """Until cancelled. Raises LaunchError where the far engine is out of reach, Refused where
        it declines, StoreError where a page cannot be stored."""
        both = [asyncio.create_task(self._pull()), asyncio.create_task(self._pass_ticks())]
        try:
            await asyncio.gather(*both)
        finally:
            await cancel(*both)

    async def catch_up(self) -> None:
        """Until nothing more is known there; without ticks. Raises as `run` does."""
        while (changes := await self._ask(self._replica.seq, 0.0)).page:
            await self._store(changes)

    async def _pull(self) -> None:
        """The next page is on its way while one is stored."""
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
        """Raises StoreError for a page that cannot be stored, or that brings nothing."""
        before = self._replica.seq
        stored = await asyncio.to_thread(self._replica.apply, changes.page)
        if stored == before or stored != changes.last:
            raise StoreError.of(
                "replica.no_progress",
                f"A page of changes that should reach event {changes.last} ends with {stored}.",
                "They are requested again. If this continues, update both engines to the same "
                "version.",
            )
        self._announce(None)

    async def _ask(self, after: int, wait_s: float = WAIT_S) -> Changes:
        asked = time.monotonic()
        changes = await self._far.changes(self._run_id, after, wait_s, self._most)
        if wait_s and not changes.page and time.monotonic() - asked < IDLE_S:
            await asyncio.sleep(IDLE_S)
        self.known = max(self.known, changes.known)
        if changes.last < changes.known:
            slow = time.monotonic() - asked > PAGE_S
            wanted = self._most // 2 if slow else self._most * 2
            self._most = min(max(wanted, FIRST_BYTES), MOST_BYTES)
        return changes

    async def _pass_ticks(self) -> None:
        async with aclosing(self._far.ticks(self._run_id)) as ticks:
            async for tick in ticks:
                self._announce(tick)
