"""Thread in which a script's connection to the engine runs."""

import asyncio
import threading
from pathlib import Path

from engine.integrations.art.engine_thread import Link


def threads() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name == "atelier"]


async def current_thread_name() -> str:
    return threading.current_thread().name


def test_engine_thread_ends_with_close_and_starts_again(tmp_path: Path) -> None:
    async def work() -> None:
        link = Link(tmp_path, None)
        await link.close(finished=True)  # nothing was started
        for _ in range(2):
            assert await link.ask(current_thread_name()) == "atelier"
            assert len(threads()) == 1
            await link.close(finished=True)
            assert threads() == []

    asyncio.run(work())


def test_pending_request_is_cancelled_on_close(tmp_path: Path) -> None:
    async def for_ever() -> None:
        started.set()
        await asyncio.Event().wait()

    async def work() -> None:
        link = Link(tmp_path, None)
        pending = asyncio.create_task(link.ask(for_ever()))
        await asyncio.to_thread(started.wait, 20)
        await link.close(finished=True)
        await asyncio.wait([pending])
        assert pending.cancelled()
        assert threads() == []

    started = threading.Event()
    asyncio.run(work())
