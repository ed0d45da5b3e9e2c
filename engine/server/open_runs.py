"""Runs that nobody trains, opened for writing: labels, trials of the judge. Shared while used."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from engine.labelling import Labeller
from engine.protocol.problems import Refused
from engine.run import Run, read_spec
from engine.server.stream import Broadcast

PATIENCE_S = 2.0
"""How long a start waits for a label that is being stored."""


@dataclass
class Opened:
    """A run that is open, who takes its labels, and how many use it."""

    run: Run
    labeller: Labeller
    users: int = 0


class OpenRuns:
    """At most one opening of a run in this engine."""

    def __init__(self, broadcast: Broadcast) -> None:
        self._broadcast = broadcast
        self._opened: dict[str, Opened] = {}
        self._changed = asyncio.Condition()

    @contextlib.asynccontextmanager
    async def use(self, run_id: str, folder: Path) -> AsyncIterator[Opened]:
        """Raises Refused where another engine works on it."""
        async with self._changed:
            if run_id not in self._opened:
                self._opened[run_id] = await asyncio.to_thread(self._open, run_id, folder)
            opened = self._opened[run_id]
            opened.users += 1
        try:
            yield opened
        finally:
            async with self._changed:
                opened.users -= 1
                if not opened.users:
                    del self._opened[run_id]
                    await asyncio.to_thread(opened.run.close)
                self._changed.notify_all()

    @contextlib.asynccontextmanager
    async def none_of(self, run_id: str) -> AsyncIterator[None]:
        """While nobody has it open, and nobody can. Raises Refused where a judge is at work."""
        async with self._changed:
            try:
                async with asyncio.timeout(PATIENCE_S):
                    await self._changed.wait_for(lambda: run_id not in self._opened)
            except TimeoutError:
                raise Refused.of(
                    "run.judging",
                    "The judge is at work on this run.",
                    "Wait until it is done, or cancel it on the Judge page.",
                ) from None
            yield

    def _open(self, run_id: str, folder: Path) -> Opened:
        spec = read_spec(folder)
        run = Run(folder, spec, lambda tick: self._broadcast.announce(run_id, tick))
        return Opened(run, Labeller(run))
