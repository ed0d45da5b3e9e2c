"""Calls about the changes of a run, for a copy of it that is kept elsewhere."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

import httpx

from engine.client.transport import Transport, bad_answer
from engine.protocol.events.run import ProgressTicked, decode
from engine.protocol.problems import LaunchError
from engine.protocol.requests.sync import KNOWN, LAST

MOST_PAGE_BYTES = 2**28
MOST_TICK_BYTES = 2**20
MOST_SEQ = 2**53
SLACK_S = 20.0
"""Seconds that a response may take beyond its allowed waiting time."""


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
    """Calls of a mirror of a run."""

    async def changes(
        self, run_id: str, after: int, wait: float = 0.0, most: int = 2**24
    ) -> Changes:
        """Changes after event `after`, about `most` bytes before compression; waits up to `wait`
        seconds (at most 20) for the first."""
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
        """Signs of life as they come, and nothing that is stored; until the engine closes the
        stream or falls silent."""
        path = f"/runs/{run_id}/ticks"
        async with aclosing(self._streamed(path, most_line_bytes=MOST_TICK_BYTES)) as lines:
            async for line in lines:
                try:
                    tick = decode(line)
                except ValueError as error:
                    raise LaunchError.of(
                        "engine.bad_answer",
                        "The engine sent a sign of life that cannot be read.",
                        "Bring both engines to the same version.",
                        where=path,
                        detail=str(error)[:2000],
                    ) from error
                if isinstance(tick, ProgressTicked):
                    yield tick


def _seq(response: httpx.Response, header: str, otherwise: int | None = None) -> int:
    """The number of an event in a header. Raises LaunchError where it is none."""
    text = response.headers.get(header, "" if otherwise is None else str(otherwise))
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) < MOST_SEQ):
        raise bad_answer(response, f"its header {header} is no number of an event")
    return int(text)
