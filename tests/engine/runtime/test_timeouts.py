"""Time limits grow by what outages take of them, and by nothing else."""

import asyncio
import time

import pytest

from engine.runtime.timeouts import Outages, run_with_timeout


async def rest(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "done"


def test_work_has_its_time_and_no_more() -> None:
    async def work() -> None:
        assert await run_with_timeout(1.0, lambda: 0.0, rest(0.01)) == "done"
        begun = time.monotonic()
        with pytest.raises(TimeoutError):
            await run_with_timeout(0.05, lambda: 0.0, rest(5))
        assert time.monotonic() - begun < 1

    asyncio.run(work())


def test_an_outage_is_given_back_while_it_lasts_and_after() -> None:
    async def work() -> None:
        outages = Outages()
        task = asyncio.create_task(run_with_timeout(0.1, lambda: outages.seconds, rest(0.5)))
        await asyncio.sleep(0.02)
        with outages.during():
            await asyncio.sleep(0.45)
        assert await task == "done"
        with pytest.raises(TimeoutError):
            await run_with_timeout(0.1, lambda: outages.seconds, rest(5))

    asyncio.run(work())


def test_what_fails_says_so_itself() -> None:
    async def fail() -> None:
        raise ValueError("of its own")

    with pytest.raises(ValueError, match="of its own"):
        asyncio.run(run_with_timeout(1.0, lambda: 0.0, fail()))


def test_outages_at_the_same_time_count_once_and_from_when_they_began() -> None:
    outages = Outages()
    with outages.during(since=time.monotonic() - 10), outages.during(since=time.monotonic() - 3):
        assert outages.seconds == pytest.approx(10, abs=0.2)
    with outages.during(since=time.monotonic() - 99):
        assert outages.seconds == pytest.approx(10, abs=0.2), "what was counted is not again"
