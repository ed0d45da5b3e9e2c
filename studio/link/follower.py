"""Stream of one run's events, in order from the last `seq`, resumed after every failure."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing

from engine.client import EngineClient
from engine.protocol.events.history import History
from engine.protocol.events.run import Event, UnknownEvent
from engine.protocol.problems import AtelierError, LaunchError, Problem
from studio.link.backoff import Backoff

StreamedEvent = Event | UnknownEvent | History
Events = list[StreamedEvent]
MAX_BATCH = 1000
REFUSALS = 3
HISTORY_PART = 100
"""Events of a history that are folded in one piece: a few milliseconds of the window's thread."""


class Follower:
    """Follower of one run. Collects events in a batch; `take` empties it to make room for more."""

    def __init__(
        self,
        run_id: str,
        after: int,
        client: Callable[[], Awaitable[EngineClient]],
        lost: Callable[[Problem], None],
        broken: Callable[[], None],
    ) -> None:
        self.run_id = run_id
        self.last = after
        self._client = client
        self._lost = lost
        self._broken = broken
        self._batch: Events = []
        self._room = asyncio.Event()
        self._room.set()
        self._backoff = Backoff()

    def take(self) -> Events:
        """Return the events streamed since the last call, each only once."""
        batch, self._batch = self._batch, []
        self._room.set()
        return batch

    async def run(self) -> None:
        """Stream until cancelled, or until the engine keeps refusing (`lost` then has the
        reason)."""
        refusals = 0
        while refusals < REFUSALS:
            try:
                await self._read()
                refusals = 0
            except LaunchError:
                self._broken()
            except AtelierError as error:
                refusals += 1
                problem = error.problem
                self._broken()
            except ValueError as error:
                problem = _garbled(self.run_id, error)
                refusals += 1
            await asyncio.sleep(self._backoff.failed())
        self._lost(problem)

    async def _read(self) -> None:
        """Read one stream from the last `seq` until it closes or an event is missing."""
        client = await self._client()
        async with aclosing(client.brief_events(self.run_id, self.last)) as events:
            async for event in events:
                if event.seq is not None:
                    if event.seq <= self.last:
                        continue
                    first = event.first if isinstance(event, History) else event.seq
                    if first != self.last + 1:
                        return
                    self.last = event.seq
                    self._backoff.worked()
                for part in event.parts(HISTORY_PART) if isinstance(event, History) else (event,):
                    await self._put(part)

    async def _put(self, event: StreamedEvent) -> None:
        await self._room.wait()
        self._batch.append(event)
        if len(self._batch) >= MAX_BATCH:
            self._room.clear()


def _garbled(run_id: str, error: ValueError) -> Problem:
    return Problem(
        code="link.garbled",
        message="The engine sent an event that cannot be parsed.",
        hint="Studio and engine may have different versions. Restart the engine.",
        where=run_id,
        detail=str(error),
    )
