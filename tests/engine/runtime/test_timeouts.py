"""Timeouts that exclude the time of outages."""

import asyncio
import time

import pytest

from engine.runtime.timeouts import Outages, run_with_timeout


async def sleep_and_return(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "done"


def test_work_finishes_or_times_out() -> None:
    async def work() -> None:
        assert await run_with_timeout(1.0, lambda: 0.0, sleep_and_return(0.01)) == "done"
        start = time.monotonic()
        with pytest.raises(TimeoutError):
            await run_with_timeout(0.05, lambda: 0.0, sleep_and_return(5))
        assert time.monotonic() - start < 1

    asyncio.run(work())


def test_outage_extends_the_timeout() -> None:
    async def work() -> None:
        outages = Outages()
        task = asyncio.create_task(
            run_with_timeout(0.1, lambda: outages.seconds, sleep_and_return(0.5))
        )
        await asyncio.sleep(0.02)
        with outages.during():
            await asyncio.sleep(0.45)
        assert await task == "done"
        with pytest.raises(TimeoutError):
            await run_with_timeout(0.1, lambda: outages.seconds, sleep_and_return(5))

    asyncio.run(work())


def test_error_of_the_work_is_raised() -> None:
    async def fail() -> None:
        raise ValueError("of its own")

    with pytest.raises(ValueError, match="of its own"):
        asyncio.run(run_with_timeout(1.0, lambda: 0.0, fail()))


def test_overlapping_outages_count_once_from_their_start() -> None:
    outages = Outages()
    with outages.during(since=time.monotonic() - 10), outages.during(since=time.monotonic() - 3):
        assert outages.seconds == pytest.approx(10, abs=0.2)
    with outages.during(since=time.monotonic() - 99):
        assert outages.seconds == pytest.approx(10, abs=0.2), "counted time should not count again"
