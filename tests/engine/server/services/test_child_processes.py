"""Child processes that a run's end leaves alone."""

import asyncio
from pathlib import Path

from engine.judge.providers.access import start_worker
from engine.server.services.child_processes import ChildProcesses


def test_a_providers_process_is_known_from_its_start_to_its_end(tmp_path: Path) -> None:
    async def work() -> None:
        children = ChildProcesses()
        worker = await start_worker("judge", tmp_path / "log")
        assert worker.pid in children.pids()  # it still imports, and has answered nothing
        await worker.kill()
        assert worker.pid not in children.pids()

    asyncio.run(work())
