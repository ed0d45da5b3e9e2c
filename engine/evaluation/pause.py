"""Pause and stop between two rollouts; running rollouts end first."""

import asyncio

from engine.protocol.events.run import RunContinued, RunPaused
from engine.storage.run_folder.run import Run


class PauseControl:
    """Point that every rollout passes before it begins."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._one_waits = asyncio.Lock()

    @property
    def closed(self) -> bool:
        """Whether a stop was ordered."""
        return self._run.orders.stop_after_step

    async def passes(self) -> bool:
        """Wait while the run is paused; False where it is to end."""
        if self._run.orders.paused and not self.closed:
            async with self._one_waits:
                await self._wait()
        return not self.closed

    async def _wait(self) -> None:
        orders = self._run.orders
        if not orders.paused or self.closed:
            return
        await self._run.say(RunPaused(step=0))
        while orders.paused and not self.closed:
            orders.changed.clear()
            await orders.changed.wait()
        if not self.closed:
            await self._run.say(RunContinued(step=0))
