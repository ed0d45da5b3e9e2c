"""Groups of one step after another. With `train.staleness`, rollouts of the next steps are sampled
while the policy trains, by weights that are at most that many updates old.

Steps are sampled strictly in order, independent of speed: the next step begins when all rollouts of
this one are complete, so a step that is trained again uses the same trajectories.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Self

from engine.protocol.records.runs import Trajectory
from engine.runtime.closing import cancel
from engine.storage.run_folder.run import Run
from engine.training.step.metrics import Clock

Groups = list[list[Trajectory]]
Roll = Callable[[int, Clock], Awaitable[Groups]]
"""Function (step, clock) that samples the groups of a step and returns them complete."""


class Rollouts:
    """Source of the groups of each step, in order. A context manager: leaving it cancels rollouts
    that are being sampled ahead for later steps."""

    def __init__(self, run: Run, roll: Roll) -> None:
        self._run, self._roll = run, roll
        self._ahead: dict[int, asyncio.Task[tuple[Groups, Clock]]] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await cancel(*self._ahead.values())

    async def of(self, step: int, clock: Clock) -> Groups:
        """Return the groups of a step once they are complete, and start sampling up to
        `train.staleness` later steps in the background. `clock` counts the time of sampling."""
        task = self._ahead.get(step)
        groups = await (self._roll(step, clock) if task is None else self._wait(step, task, clock))
        self._ahead.pop(step, None)
        before = None
        for later in range(step + 1, step + 1 + self._run.config.train.staleness):
            if later > self._run.orders.steps or self._run.orders.stop_after_step:
                break
            if later not in self._ahead:
                self._ahead[later] = asyncio.create_task(self._begin(later, before))
            before = self._ahead[later]
        return groups

    async def _begin(
        self, step: int, before: "asyncio.Task[tuple[Groups, Clock]] | None"
    ) -> tuple[Groups, Clock]:
        self._run.quiet.add(step)
        if before:
            await asyncio.wait({before})
        clock = Clock()
        return await self._roll(step, clock), clock

    async def _wait(
        self, step: int, task: "asyncio.Task[tuple[Groups, Clock]]", clock: Clock
    ) -> Groups:
        start_s = time.monotonic()
        self._run.quiet.discard(step)
        if not task.done():
            await self._run.enter(step, "rolling_out")
        groups, own = await asyncio.shield(task)
        clock.phases |= own.phases | {"waiting": time.monotonic() - start_s}
        return groups


def staleness(step: int, groups: Groups) -> float:
    """Mean number of updates by which the weights that step `step` updates are newer than those
    that sampled the rollouts in `groups` (not empty)."""
    ages = [step - 1 - attempt.policy_version for group in groups for attempt in group]
    return sum(ages) / len(ages)
