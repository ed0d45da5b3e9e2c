"""TaskScope: results, failures, replacement of tasks of the same name, cancellation on close."""

import asyncio
from typing import Any

from engine.protocol.problems import LaunchError, Problem
from studio.runtime.tasks import TaskScope
from tests.studio.conftest import Run


async def echo(value: Any, wait_s: float = 0.0) -> Any:
    await asyncio.sleep(wait_s)
    return value


async def fail_to_launch() -> None:
    raise LaunchError.of("engine.unreachable", "Nobody answers.")


def test_scope_reports_results_failures_and_busy_state(run: Run) -> None:
    async def job() -> None:
        scope = TaskScope()
        busy: list[tuple[str, bool]] = []
        failed: list[tuple[str, Problem]] = []
        done: list[int] = []
        scope.busy_changed.connect(lambda name, on: busy.append((name, on)))
        scope.failed.connect(lambda name, problem: failed.append((name, problem)))
        task = scope.run("one", echo(1), done.append)
        assert task is not None
        assert scope.busy("one")
        await task
        bad = scope.run("two", fail_to_launch())
        assert bad is not None
        await bad
        await asyncio.sleep(0)
        assert done == [1]
        assert failed[0][1].code == "engine.unreachable"
        assert busy == [("one", True), ("one", False), ("two", True), ("two", False)]
        await scope.close()

    run(job())


def test_newer_task_replaces_task_of_same_name(run: Run) -> None:
    async def job() -> None:
        scope = TaskScope()
        done: list[int] = []
        scope.run("search", echo(1, 0.05), done.append)
        last = scope.run("search", echo(2, 0.01), done.append)
        assert last is not None
        await last
        await asyncio.sleep(0.06)
        assert done == [2]
        await scope.close()

    run(job())


def test_close_cancels_tasks_and_rejects_new_ones(run: Run) -> None:
    async def job() -> None:
        scope = TaskScope()
        done: list[int] = []
        task = scope.run("long", echo(1, 30), done.append)
        await scope.close()
        assert task is not None
        assert task.cancelled()
        assert not done
        assert scope.run("late", echo(2)) is None

    run(job())


def test_close_waits_for_a_replaced_job_that_is_still_ending(run: Run) -> None:
    async def job() -> None:
        scope = TaskScope()
        ended: list[int] = []

        async def slow_to_end(number: int) -> None:
            try:
                await asyncio.sleep(60)
            finally:
                await asyncio.sleep(0.05)
                ended.append(number)

        scope.run("price", slow_to_end(1))
        await asyncio.sleep(0)
        scope.run("price", echo(2, 60))
        await asyncio.sleep(0)
        await scope.close()
        assert ended == [1]

    run(job())


def test_unexpected_exception_is_reported_as_studio_defect(run: Run) -> None:
    async def broken() -> None:
        raise KeyError("x")

    async def job() -> None:
        scope = TaskScope()
        failed: list[Problem] = []
        task = scope.run("b", broken(), failed=failed.append)
        assert task is not None
        await task
        assert failed[0].code == "studio.defect"
        assert "KeyError" in failed[0].message
        await scope.close()

    run(job())
