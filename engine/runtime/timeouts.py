"""Time limits that do not count what somebody else has cost: while the policy is away, an agent can
only wait."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

T = TypeVar("T")
Away = Callable[[], float]
"""Seconds, so far, in which nobody could have gone on."""


def never() -> float:
    return 0.0


class Outages:
    """Adds up the time within `during`; outages at the same time count once."""

    def __init__(self) -> None:
        self._before, self._begun, self._ended, self._open = 0.0, 0.0, 0.0, 0

    @contextlib.contextmanager
    def during(self, since: float | None = None) -> Iterator[None]:
        """`since` is when it began, by the monotonic clock, where it is noticed only now."""
        if not self._open:
            self._begun = max(since or time.monotonic(), self._ended)
        self._open += 1
        try:
            yield
        finally:
            self._open -= 1
            if not self._open:
                self._ended = time.monotonic()
                self._before += self._ended - self._begun

    @property
    def seconds(self) -> float:
        return self._before + (time.monotonic() - self._begun if self._open else 0.0)


async def run_with_timeout(seconds: float, away: Away, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which gets `seconds` and what outages take of them. Raises
    TimeoutError, and then has ended it."""
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
