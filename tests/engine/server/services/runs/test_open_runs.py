"""Open runs: callers that are cancelled while a run is opened or closed leave no lock behind."""

import asyncio
from pathlib import Path

import pytest

from engine.runtime.closing import cancel
from engine.server.event_stream import Broadcast
from engine.server.services.runs import open_runs
from engine.server.services.runs.open_runs import OpenRuns
from engine.storage.run_folder.run import is_locked, locked
from tests.engine.storage.run_db.test_repair import RUN, make


def test_cancelled_users_leave_no_run_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_runs, "LINGER_S", 0.1)
    folder = make(tmp_path / RUN, 3)

    async def job() -> None:
        runs = OpenRuns(Broadcast(asyncio.get_running_loop()))

        async def use() -> None:
            async with runs.use(RUN, folder):
                await asyncio.sleep(0.01)

        for turns in range(40):  # cancelled before, while and after it is opened
            user = asyncio.create_task(use())
            for _ in range(turns % 4):
                await asyncio.sleep(0)
            await asyncio.sleep(turns % 8 * 0.001)
            await cancel(user)
        async with asyncio.timeout(10), runs.none_of(RUN):
            assert not is_locked(folder)
        await use()
        assert runs._closing
        await asyncio.wait_for(runs._closing, 10)  # closed when it has not been used for a while
        assert not is_locked(folder)
        await runs.close()

    asyncio.run(job())


def test_run_is_closed_before_next_caller_opens_it(tmp_path: Path) -> None:
    folder = make(tmp_path / RUN, 3)

    async def job() -> None:
        runs = OpenRuns(Broadcast(asyncio.get_running_loop()))

        async def close() -> None:
            async with runs.none_of(RUN):
                pass

        for _ in range(20):
            async with runs.use(RUN, folder):
                pass
            closing = asyncio.create_task(close())
            await asyncio.sleep(0)
            await cancel(closing)
            async with runs.none_of(RUN):
                with locked(folder):
                    pass

    asyncio.run(job())
