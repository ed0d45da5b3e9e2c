"""Pausing an evaluation: rollouts wait while paused and do not start once it stops."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from engine.evaluation.evaluate import PauseControl
from engine.protocol.config.project import ProjectConfig
from engine.protocol.records.runs import RunSpec
from engine.storage.run_folder.run import Run


def pause_events(folder: Path, work: Callable[[Run, PauseControl], Awaitable[None]]) -> list[str]:
    """Run `work` and return the kinds of pause events it recorded."""
    spec = RunSpec(
        id="run", name="a run", project="p", started_at=0, config=ProjectConfig(), model_path=""
    )

    async def run_work() -> list[str]:
        run = Run(folder, spec, lambda tick: None)
        try:
            async with asyncio.timeout(10):
                await work(run, PauseControl(run))
            return [event.kind for event in run.reader.events_of("run.paused", "run.continued")]
        finally:
            run.close()

    return asyncio.run(run_work())


async def waiting_rollouts(pause: PauseControl) -> list["asyncio.Task[bool]"]:
    """Three rollouts that wait at a closed pause control."""
    tasks = [asyncio.create_task(pause.passes()) for _ in range(3)]
    await asyncio.sleep(0.1)
    assert not any(task.done() for task in tasks)
    return tasks


def test_pause_is_recorded_once_for_all_waiting_rollouts(tmp_path: Path) -> None:
    async def work(run: Run, pause: PauseControl) -> None:
        assert await pause.passes()
        run.orders.give(paused=True)
        tasks = await waiting_rollouts(pause)
        run.orders.give(paused=False)
        assert await asyncio.gather(*tasks) == [True] * 3

    assert pause_events(tmp_path, work) == ["run.paused", "run.continued"]


def test_waiting_rollouts_are_refused_when_the_run_stops(tmp_path: Path) -> None:
    async def work(run: Run, pause: PauseControl) -> None:
        run.orders.give(paused=True)
        tasks = await waiting_rollouts(pause)
        run.orders.give(stop=True)
        assert await asyncio.gather(*tasks) == [False] * 3
        assert pause.closed

    assert pause_events(tmp_path, work) == ["run.paused"]
