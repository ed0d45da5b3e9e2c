"""Timeouts that exclude time during which the policy was unavailable, since an agent can only wait
then."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

T = TypeVar("T")
Away = Callable[[], float]
"""Function that returns the total seconds of unavailability so far."""


def never() -> float:
    return 0.0


class Outages:
    """Total duration of outages, measured by `during`; overlapping outages count once."""

    def __init__(self) -> None:
        self._before, self._started_at, self._ended_at, self._open = 0.0, 0.0, 0.0, 0

    @contextlib.contextmanager
    def during(self, since: float | None = None) -> Iterator[None]:
        """Count the time of the block as an outage; `since` (monotonic clock) is the outage's begin
        if it was detected later."""
        if not self._open:
            self._started_at = max(since or time.monotonic(), self._ended_at)
        self._open += 1
        try:
            yield
        finally:
            self._open -= 1
            if not self._open:
                self._ended_at = time.monotonic()
                self._before += self._ended_at - self._started_at

    @property
    def seconds(self) -> float:
        return self._before + (time.monotonic() - self._started_at if self._open else 0.0)


async def run_with_timeout(seconds: float, away: Away, work: Coroutine[Any, Any, T]) -> T:
    """Await `work` for at most `seconds`, not counting the outages that `away` reports, and return
    its result. On a timeout, cancels `work` and raises TimeoutError."""
    task = asyncio.ensure_future(work)
    known, left = away(), seconds
    try:
        while left > 0:
            await asyncio.wait({task}, timeout=left)
            if task.done():
                return task.result()
            now = away()
            known, left = now, now - known
        raise TimeoutError
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
