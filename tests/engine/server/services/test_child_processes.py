"""Child processes that survive the end of a run."""

import asyncio
from pathlib import Path

from engine.judge.providers.access import start_worker
from engine.server.services.child_processes import ChildProcesses


def test_provider_process_is_listed_from_start_to_end(tmp_path: Path) -> None:
    async def work() -> None:
        children = ChildProcesses()
        worker = await start_worker("judge", tmp_path / "log")
        assert worker.pid in children.pids()  # still importing, before its first response
        await worker.kill()
        assert worker.pid not in children.pids()

    asyncio.run(work())
