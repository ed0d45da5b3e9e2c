"""Queue of runs: they wait until the device is free and begin oldest first."""

import asyncio
import sys
from pathlib import Path

from engine.protocol.events.run import RunQueued, RunStopped
from engine.protocol.problems import AtelierError, Refused
from engine.protocol.records.runs import RunSpec
from engine.server.services.library import Library
from engine.server.services.runs.lifecycle import RunLifecycle


class RunQueue:
    """Queued runs of this engine, and of an earlier engine of the same workspace."""

    def __init__(self, library: Library, lifecycle: RunLifecycle) -> None:
        self._library, self._lifecycle = library, lifecycle
        self._waiting: list[Path] = []
        self._advancing: asyncio.Task[None] | None = None
        self._closed = False
        lifecycle.on_ended(self.advance)

    def advance(self) -> None:
        """Begin the next queued run in the background, unless a run is active."""
        if not self._closed and (self._advancing is None or self._advancing.done()):
            self._advancing = asyncio.create_task(self._advance(), name="queue")

    async def settled(self) -> bool:
        """Wait until an attempt to begin queued runs is over; returns whether the queue is
        empty."""
        if self._advancing:
            await asyncio.wait([self._advancing])
        return not self._waiting

    async def add(self, folder: Path, spec: RunSpec) -> None:
        async with self._lifecycle.opened(spec.id) as opened:
            await opened.run.say(RunQueued(spec=spec))
        self._waiting.append(folder)

    def discard(self, folder: Path) -> None:
        """Remove a run from the queue, because it is started now; no effect if it is not queued."""
        self._waiting = [waiting for waiting in self._waiting if waiting != folder]

    async def cancel(self, run_id: str) -> None:
        """Remove a run from the queue and end it as stopped. Raises Refused if it is not queued."""
        folder = self._library.folder(run_id)
        if self._library.summary(folder).state != "queued":
            raise Refused.of("run.not_living", "This run is not active.")
        self.discard(folder)
        async with self._lifecycle.opened(run_id) as opened:
            await opened.run.say(RunStopped(step=0, reason="You removed the run from the queue."))

    async def close(self) -> None:
        """Stop the queue; waiting runs stay queued on disk."""
        self._closed = True
        if self._advancing:
            await asyncio.gather(self._advancing, return_exceptions=True)

    async def _advance(self) -> None:
        known = await asyncio.to_thread(self._library.all_runs)
        queued = [Path(run.path) for run in reversed(known) if run.state == "queued"]
        async with self._lifecycle.starting:
            self._waiting += [folder for folder in queued if folder not in self._waiting]
            while self._waiting and not self._lifecycle.active and not self._closed:
                folder = self._waiting.pop(0)
                try:
                    await self._lifecycle.begin(folder)
                except AtelierError as error:  # the folder is gone or damaged: try the next run
                    sys.stderr.write(f"{error}\n")
