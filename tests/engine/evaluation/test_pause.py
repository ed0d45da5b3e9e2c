"""Attempts wait while an evaluation is paused, and do not begin once it is to end."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from engine.evaluation.evaluate import PauseControl
from engine.protocol.config.project import ProjectConfig
from engine.protocol.records.runs import RunSpec
from engine.storage.run_folder.run import Run


def through(folder: Path, work: Callable[[Run, PauseControl], Awaitable[None]]) -> list[str]:
    """The kinds of what was said meanwhile."""
    spec = RunSpec(
        id="run", name="a run", project="p", started_at=0, config=ProjectConfig(), model_path=""
    )

    async def going() -> list[str]:
        run = Run(folder, spec, lambda tick: None)
        try:
            async with asyncio.timeout(10):
                await work(run, PauseControl(run))
            return [event.kind for event in run.reader.events_of("run.paused", "run.continued")]
        finally:
            run.close()

    return asyncio.run(going())


async def waiting(gate: PauseControl) -> list["asyncio.Task[bool]"]:
    """Three attempts before a closed gate."""
    tasks = [asyncio.create_task(gate.passes()) for _ in range(3)]
    await asyncio.sleep(0.1)
    assert not any(task.done() for task in tasks)
    return tasks


def test_a_pause_is_said_once_however_many_wait(tmp_path: Path) -> None:
    async def work(run: Run, gate: PauseControl) -> None:
        assert await gate.passes()
        run.orders.give(paused=True)
        tasks = await waiting(gate)
        run.orders.give(paused=False)
        assert await asyncio.gather(*tasks) == [True] * 3

    assert through(tmp_path, work) == ["run.paused", "run.continued"]


def test_whoever_waits_hears_of_the_end(tmp_path: Path) -> None:
    async def work(run: Run, gate: PauseControl) -> None:
        run.orders.give(paused=True)
        tasks = await waiting(gate)
        run.orders.give(stop=True)
        assert await asyncio.gather(*tasks) == [False] * 3
        assert gate.closed

    assert through(tmp_path, work) == ["run.paused"]
