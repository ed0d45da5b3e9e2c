"""The thread in which a script's way to the engine lives."""

import asyncio
import threading
from pathlib import Path

from engine.integrations.art.engine_thread import Link


def threads() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name == "atelier"]


async def where() -> str:
    return threading.current_thread().name


def test_it_ends_with_close_and_begins_anew(tmp_path: Path) -> None:
    async def work() -> None:
        link = Link(tmp_path, None)
        await link.close(finished=True)  # nothing was begun
        for _ in range(2):
            assert await link.ask(where()) == "atelier"
            assert len(threads()) == 1
            await link.close(finished=True)
            assert threads() == []

    asyncio.run(work())


def test_whoever_still_asks_is_cancelled(tmp_path: Path) -> None:
    async def for_ever() -> None:
        begun.set()
        await asyncio.Event().wait()

    async def work() -> None:
        link = Link(tmp_path, None)
        asked = asyncio.create_task(link.ask(for_ever()))
        await asyncio.to_thread(begun.wait, 20)
        await link.close(finished=True)
        await asyncio.wait([asked])
        assert asked.cancelled()
        assert threads() == []

    begun = threading.Event()
    asyncio.run(work())
