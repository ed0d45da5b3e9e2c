"""Cleanup: work that must not be cut off ends before the cancellation is raised."""

import asyncio

import pytest

from engine.runtime.closing import finished


def test_cancellation_is_raised_when_work_has_ended() -> None:
    ended = False

    async def work() -> int:
        nonlocal ended
        await asyncio.sleep(0.05)
        ended = True
        return 3

    async def job() -> None:
        nonlocal ended
        assert await finished(work()) == 3
        ended = False
        caller = asyncio.create_task(finished(work()))
        await asyncio.sleep(0)
        for _ in range(3):
            caller.cancel()
            await asyncio.sleep(0.005)
        assert not caller.done()
        with pytest.raises(asyncio.CancelledError):
            await caller
        assert ended

    asyncio.run(job())


def test_error_of_work_is_raised_or_noted() -> None:
    async def work() -> None:
        await asyncio.sleep(0.01)
        raise OSError("no room")

    async def job() -> None:
        with pytest.raises(OSError, match="no room"):
            await finished(work())
        caller = asyncio.create_task(finished(work()))
        await asyncio.sleep(0)
        caller.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await caller
        assert "no room" in caught.value.__notes__[0]

    asyncio.run(job())
