"""Calls about the changes of a run, for a copy of it that is kept elsewhere."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

import httpx

from engine.client.transport import Transport
from engine.protocol.events import ProgressTicked, decode
from engine.protocol.replicas import KNOWN, LAST

SLACK_S = 20.0
"""What an answer may take beyond the time that it was allowed to wait."""


@dataclass(frozen=True)
class Changes:
    """A page of changes, as the engine sent it."""

    page: bytes
    """Empty where nothing came in time."""
    last: int
    """The `seq` of the last event in the page; what was asked for, where it is empty."""
    known: int
    """The last event of the run."""


class ReplicaCalls(Transport):
    """One run, as a copy of it needs it."""

    async def changes(
        self, run_id: str, after: int, wait: float = 0.0, most: int = 2**24
    ) -> Changes:
        """What comes behind event `after`, about `most` bytes of it before they are packed; `wait`
        seconds (at most 20) for the first."""
        response = await self._send(
            "GET",
            f"/runs/{run_id}/changes",
            params={"after": after, "wait": wait, "most": most},
            timeout=httpx.Timeout(wait + SLACK_S, connect=5.0),
        )
        known = int(response.headers.get(KNOWN, after))
        if response.status_code == httpx.codes.NO_CONTENT:
            return Changes(b"", after, known)
        return Changes(response.content, int(response.headers[LAST]), known)

    async def ticks(self, run_id: str) -> AsyncGenerator[ProgressTicked, None]:
        """Signs of life as they come, and nothing that is stored; until the engine closes the
        stream or falls silent."""
        async with aclosing(self._streamed(f"/runs/{run_id}/ticks")) as lines:
            async for line in lines:
                if isinstance(tick := decode(line), ProgressTicked):
                    yield tick
