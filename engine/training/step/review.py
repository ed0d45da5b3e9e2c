"""Review between rollouts and update: the run waits for labels."""

import asyncio
import time
from typing import Literal

from engine.protocol.events.run import ReviewClosed, ReviewOpened, RunContinued, RunPaused
from engine.storage.run_folder.run import Run
from engine.training.labels.service import closed_batches
from engine.training.step.metrics import Clock


async def review(run: Run, step: int, clock: Clock) -> None:
    """Wait for labels if `train.review_every` makes a review due at this step, until the user
    continues, a stop is requested, or `train.review_timeout_s` has passed; `train.review_then`
    decides whether the run is paused after this timeout."""
    train = run.config.train
    if not train.review_every or step % train.review_every or step in closed_batches(run):
        return
    run.orders.reviewed = False
    wait_s = train.review_timeout_s
    until = None if wait_s is None else time.time() + wait_s
    async with clock.phase(run, step, "reviewing"):
        await run.say(ReviewOpened(step=step, until=until, then=train.review_then))
        by = await _decision(run, wait_s)
        await run.say(ReviewClosed(step=step, by=by))
        if by == "timeout" and train.review_then == "pause":
            await _pause(run, step)


async def _decision(run: Run, wait_s: float | None) -> Literal["person", "timeout", "stop"]:
    try:
        async with asyncio.timeout(wait_s):
            await run.orders.until(lambda: run.orders.reviewed or run.orders.stop_after_step)
    except TimeoutError:
        return "timeout"
    return "person" if run.orders.reviewed else "stop"


async def _pause(run: Run, step: int) -> None:
    orders = run.orders
    orders.give(paused=True)
    await run.say(RunPaused(step=step))
    await orders.until(lambda: orders.reviewed or orders.stop_after_step or not orders.paused)
    orders.give(paused=False)
    await run.say(RunContinued(step=step))
