"""Event stream of a run as server-sent events: replay stored events, then follow new ones.

Stored events are read from run.db in order of `seq`; a commit only wakes the readers. A slow reader
therefore costs no memory, and a reconnected one continues after its last `seq`. Progress ticks are
sent in the same stream and may be lost.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from engine.protocol.base import BaseEvent
from engine.protocol.events.run import encode

HEARTBEAT_S = 5.0
TICKS_KEPT = 16


class Subscriber:
    """Open event stream of one client."""

    def __init__(self) -> None:
        self.woken = asyncio.Event()
        self.ticks: list[str] = []

    def wake(self, tick: BaseEvent | None) -> None:
        if tick is not None:
            self.ticks = [*self.ticks[-TICKS_KEPT + 1 :], encode(tick)]
        self.woken.set()


class Broadcast:
    """Event subscribers by run. `announce` may be called from any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._subscribers: dict[str, set[Subscriber]] = {}
        self.closing = False

    @property
    def listeners(self) -> int:
        return sum(map(len, self._subscribers.values()))

    def announce(self, run_id: str, tick: BaseEvent | None) -> None:
        """Pass a progress tick to a run's subscribers; None tells them of new stored events."""
        self._loop.call_soon_threadsafe(self._announce, run_id, tick)

    def close(self) -> None:
        self.closing = True
        for run_id in self._subscribers:
            self._announce(run_id, None)

    @asynccontextmanager
    async def subscribe(self, run_id: str) -> AsyncIterator[Subscriber]:
        subscriber = Subscriber()
        subscribers = self._subscribers.setdefault(run_id, set())
        subscribers.add(subscriber)
        try:
            yield subscriber
        finally:
            subscribers.discard(subscriber)

    def _announce(self, run_id: str, tick: BaseEvent | None) -> None:
        for subscriber in self._subscribers.get(run_id, ()):
            subscriber.wake(tick)


async def ticks(broadcast: Broadcast, run_id: str) -> AsyncIterator[str]:
    """Yield lines of `text/event-stream` with the progress ticks of a run, without its stored
    events, until the server closes."""
    async with broadcast.subscribe(run_id) as subscriber:
        yield ": following\n\n"
        while not broadcast.closing:
            subscriber.woken.clear()
            if ticked := _ticks(subscriber):
                yield ticked
            if not await _woken(subscriber):
                yield ": alive\n\n"


async def follow(
    broadcast: Broadcast, run_id: str, read: Callable[[int], tuple[list[str], int]], after: int
) -> AsyncIterator[str]:
    """Yield lines of `text/event-stream` until the server closes: stored events with a `seq` above
    `after`, and progress ticks. `read(after)` returns the next page of stored events and the `seq`
    of its last one."""
    async with broadcast.subscribe(run_id) as subscriber:
        yield ": following\n\n"
        while not broadcast.closing:
            subscriber.woken.clear()
            while (page := await asyncio.to_thread(read, after))[0]:
                lines, after = page
                first = after - len(lines) + 1
                yield "".join(f"id: {i}\ndata: {e}\n\n" for i, e in enumerate(lines, first))
            if ticked := _ticks(subscriber):
                yield ticked
            if not await _woken(subscriber):
                yield ": alive\n\n"


def _ticks(subscriber: Subscriber) -> str:
    ticks, subscriber.ticks = subscriber.ticks, []
    return "".join(f"data: {tick}\n\n" for tick in ticks)


async def _woken(subscriber: Subscriber) -> bool:
    """Wait for news; False if a heartbeat is due instead."""
    try:
        await asyncio.wait_for(subscriber.woken.wait(), HEARTBEAT_S)
    except TimeoutError:
        return False
    return True
