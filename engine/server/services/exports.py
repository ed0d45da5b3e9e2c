"""Exports of checkpoints: each is a task that ends when its client disconnects."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from pydantic import BaseModel

from engine.export.job import export_checkpoint
from engine.protocol.events.checkpoints import CheckpointExported
from engine.protocol.problems import AtelierError, Refused
from engine.protocol.requests.exports import ExportCheckpoint
from engine.server.services.runs.open_runs import OpenRun

Open = Callable[[str], AbstractAsyncContextManager[OpenRun]]
Lines = asyncio.Queue[BaseModel | None]


class ExportService:
    """Runs one export at a time, because each keeps a model in memory. `opened` opens a run for
    writing."""

    def __init__(self, opened: Open) -> None:
        self._opened = opened
        self._tasks: set[asyncio.Task[None]] = set()
        self.pids: set[int] = set()
        """PIDs of the export processes."""

    @property
    def busy(self) -> bool:
        return bool(self._tasks)

    async def progress(
        self, run_id: str, folder: Path, step: int | None, request: ExportCheckpoint
    ) -> AsyncGenerator[BaseModel, None]:
        """Export a checkpoint (`step` None: the newest) of the run in `folder`; yields progress,
        then the report or a problem. Closing the generator cancels the export."""
        queue: Lines = asyncio.Queue()
        task = asyncio.create_task(self._work(run_id, folder, step, request, queue), name="export")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            while (value := await queue.get()) is not None:
                yield value
            await task
        finally:
            task.cancel()

    async def close(self) -> None:
        """Cancel all exports, and wait until they are cleaned up."""
        for task in self._tasks:
            if not task.cancelling():
                task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _work(
        self, run_id: str, folder: Path, step: int | None, request: ExportCheckpoint, queue: Lines
    ) -> None:
        async def record(event: CheckpointExported) -> None:
            async with self._opened(run_id) as opened:
                await opened.run.say(event)

        try:
            self._refuse_second()
            tell = queue.put_nowait
            report = await export_checkpoint(folder, step, request, tell, record, self.pids)
            queue.put_nowait(report)
        except AtelierError as error:  # the answer has begun: the last line says it
            queue.put_nowait(error.problem)
        finally:
            queue.put_nowait(None)

    def _refuse_second(self) -> None:
        if len(self._tasks) > 1:
            raise Refused.of(
                "export.busy",
                "Another export is running.",
                "Wait for that export, or cancel it: each export keeps a model in memory.",
            )
