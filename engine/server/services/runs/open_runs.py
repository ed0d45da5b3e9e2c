"""Inactive runs that are open for writing labels or scores; shared by concurrent users."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from engine.protocol.base import BaseEvent
from engine.protocol.problems import Refused
from engine.runtime.closing import cancel, finished
from engine.server.event_stream import Broadcast
from engine.storage.run_folder.run import Run, read_spec
from engine.training.labels.service import LabelService

LINGER_S = 5.0
"""Seconds that a run stays open after its last use, since labels come in series and opening is
slow."""
PATIENCE_S = 2.0
"""Seconds that the start of a run waits for a label that is being stored."""


@dataclass
class OpenRun:
    """Open run, its label service, and its number of users."""

    run: Run
    labels: LabelService
    users: int = 0
    used: float = 0.0


class OpenRuns:
    """Registry of open runs; each run is opened at most once per engine."""

    def __init__(self, broadcast: Broadcast) -> None:
        self._broadcast = broadcast
        self._opened: dict[str, OpenRun] = {}
        self._changed = asyncio.Condition()
        self._closing: asyncio.Task[None] | None = None

    @contextlib.asynccontextmanager
    async def use(self, run_id: str, folder: Path) -> AsyncIterator[OpenRun]:
        """Context manager of an open run, shared by all who use it at the same time. Raises Refused
        if another engine has the run open."""
        async with self._changed:
            if run_id not in self._opened:
                await finished(self._open(run_id, folder))
            opened = self._opened[run_id]
            opened.users += 1
        try:
            yield opened
        finally:
            opened.users -= 1
            opened.used = time.monotonic()
            await finished(self._notify())

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def close(self) -> None:
        """Close all unused runs when the engine exits."""
        if self._closing:
            await cancel(self._closing)
        async with self._changed:
            for run_id in list(self._opened):
                await self._close(run_id)

    async def _close_unused(self) -> None:
        """Close runs one by one when they have not been used for `LINGER_S` seconds."""
        while self._opened:
            await asyncio.sleep(LINGER_S / 2)
            async with self._changed:
                for run_id, opened in list(self._opened.items()):
                    if time.monotonic() - opened.used > LINGER_S:
                        await self._close(run_id)

    async def _close(self, run_id: str) -> None:
        """Close a run unless it is in use. The caller holds the lock."""
        if not self._opened[run_id].users:
            opened = self._opened.pop(run_id)
            await finished(asyncio.to_thread(opened.run.close))

    @contextlib.asynccontextmanager
    async def none_of(self, run_id: str) -> AsyncIterator[None]:
        """Close a run and keep it closed during the block, so that it can be started. Waits up to
        `PATIENCE_S` seconds for its users (a judge); Refused if they do not finish."""
        async with self._changed:
            try:
                async with asyncio.timeout(PATIENCE_S):
                    await self._changed.wait_for(lambda: self._is_free(run_id))
            except TimeoutError:
                raise Refused.of(
                    "run.judging",
                    "The judge is scoring this run.",
                    "Wait until the scoring is done, or cancel it on the Judge page.",
                ) from None
            if run_id in self._opened:
                await self._close(run_id)
            yield

    def _is_free(self, run_id: str) -> bool:
        return run_id not in self._opened or not self._opened[run_id].users

    async def _open(self, run_id: str, folder: Path) -> None:
        """Open a run, and see to it that it is closed. The caller holds the lock."""

        def announce(tick: BaseEvent | None) -> None:
            self._broadcast.announce(run_id, tick)

        run = await asyncio.to_thread(lambda: Run(folder, read_spec(folder), announce))
        self._opened[run_id] = OpenRun(run, LabelService(run), used=time.monotonic())
        if self._closing is None or self._closing.done():
            self._closing = asyncio.create_task(self._close_unused(), name="open runs")
