"""Active runs: a stop is never lost, however early it arrives."""

import asyncio
from pathlib import Path

from engine.server.services.runs.work import ActiveRun
from engine.storage.run_folder.run import Run, is_locked, read_spec
from tests.engine.storage.run_db.test_repair import RUN, make


def test_run_stopped_at_any_moment_is_closed_once_with_first_reason(tmp_path: Path) -> None:
    folder = make(tmp_path / RUN, 3)
    spec = read_spec(folder)

    async def job(turns: int) -> list[str]:
        ended: list[str] = []
        run = Run(folder, spec, lambda _: None)

        async def working() -> None:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError as cancelled:
                await asyncio.sleep(0.01)  # stores the last event
                ended.append(cancelled.args[0])
            finally:
                run.close()

        active = ActiveRun(run, working())
        for _ in range(turns):
            await asyncio.sleep(0)
        async with asyncio.timeout(10):
            await asyncio.gather(active.stop("first"), active.stop("second"))
        assert active.stopping
        return ended

    for turns in range(4):
        assert asyncio.run(job(turns)) == ["first"]
        assert not is_locked(folder)
