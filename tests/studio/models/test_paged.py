"""Paged tables over the engine: fetched when visible, sorted and searched by the engine."""

import asyncio
from functools import partial
from typing import Any

import pytest
from PySide6.QtCore import Qt

from engine.client import EngineClient
from engine.protocol.config.project import TrainConfig
from engine.protocol.problems import Problem
from engine.protocol.requests.runs import TrajectoryQuery
from studio.models.groups import GroupListModel, group_words
from studio.models.paged import PAGE
from studio.models.trajectories import COLUMNS, TrajectoryTableModel
from studio.runtime.tasks import TaskScope
from tests.studio.conftest import Run, until
from tests.studio.fakes.engine import TOKEN, FakeEngine
from tests.studio.fakes.simulated_run import Simulation

RUN = "01JD5MAMBERKESTREL00000000"
TRAIN = TrainConfig(steps=12, groups=8, group_size=8)


@pytest.fixture
def filled(engine: FakeEngine) -> FakeEngine:
    run = Simulation(run_id=RUN, train=TRAIN)
    run.begin()
    for step in range(1, 9):
        run.step(step)
    engine.add_project()
    engine.add_run(run.made)
    return engine


async def with_table(engine: FakeEngine, job: Any) -> None:
    """Run `job` with a table over the engine, then close everything."""
    tasks = TaskScope()
    async with EngineClient(engine.port, TOKEN) as client:
        table = TrajectoryTableModel(tasks)
        table.set_source(partial(client.trajectories, RUN))
        try:
            await until(lambda: table.is_loaded)
            await job(table)
        finally:
            await tasks.close()


def test_page_is_fetched_when_accessed(filled: FakeEngine, run: Run, qtmodeltester: Any) -> None:
    async def job(table: TrajectoryTableModel) -> None:
        assert table.rowCount() == 8 * 64
        assert table.record(0) is not None
        requests = len(filled.asked)
        assert table.record(4 * PAGE + 3) is None
        assert table.data(table.index(4 * PAGE + 3, 0)) == "…"
        await until(lambda: table.record(4 * PAGE + 3))
        assert len(filled.asked) == requests + 1
        qtmodeltester.check(table)
        await until(lambda: not table._requested)

    run(with_table(filled, job))


def test_last_requested_page_is_fetched_first(filled: FakeEngine, run: Run) -> None:
    async def job(table: TrajectoryTableModel) -> None:
        requests = len(filled.asked)
        for page in (4, 3, 2):  # scrolled up
            assert table.record(page * PAGE) is None
        await until(lambda: len(filled.asked) == requests + 3)
        assert [query.offset for query in filled.asked[requests:]] == [2 * PAGE, 3 * PAGE, 4 * PAGE]
        await until(lambda: not table._requested)

    run(with_table(filled, job))


def test_sort_filter_and_search_are_sent_to_engine(filled: FakeEngine, run: Run) -> None:
    async def job(table: TrajectoryTableModel) -> None:
        reward = [column.title for column in COLUMNS].index("Reward")
        table.sort(reward, Qt.SortOrder.AscendingOrder)
        await until(lambda: table.is_loaded)
        query = filled.asked[-1]
        assert (query.sort, query.descending) == ("reward", False)
        assert (query.offset, query.limit) == (0, PAGE)
        table.set_query(TrajectoryQuery(state="unscored", filter="nda"))
        await until(lambda: table.is_loaded)
        assert filled.asked[-1].filter == "nda"
        assert table.total == sum(
            row.reward is None and "NDA" in row.title for row in filled.runs[RUN].trajectories
        )

    run(with_table(filled, job))


def test_growing_run_adds_rows_without_reset(filled: FakeEngine, run: Run) -> None:
    async def job(table: TrajectoryTableModel) -> None:
        before = table.rowCount()
        simulation = Simulation(run_id=RUN, train=TRAIN)
        simulation.made = filled.runs[RUN]
        simulation.step(9)
        resets: list[int] = []
        table.modelReset.connect(lambda: resets.append(1))
        table.refresh()
        await until(lambda: table.rowCount() == before + 64)
        assert not resets

    run(with_table(filled, job))


def test_refresh_during_fetch_is_repeated_afterwards(filled: FakeEngine, run: Run) -> None:
    async def job(table: TrajectoryTableModel) -> None:
        before, fetch = table.rowCount(), table._fetch
        assert fetch is not None
        answered, on = asyncio.Event(), asyncio.Event()

        async def held(query: TrajectoryQuery) -> Any:
            page = await fetch(query)
            answered.set()
            await on.wait()
            return page

        table._fetch = held
        table.refresh()
        await answered.wait()
        simulation = Simulation(run_id=RUN, train=TRAIN)
        simulation.made = filled.runs[RUN]
        simulation.step(9)
        table.refresh()
        on.set()
        await until(lambda: table.rowCount() == before + 64)

    run(with_table(filled, job))


def test_failed_fetch_emits_failed(filled: FakeEngine, run: Run) -> None:
    async def job(table: TrajectoryTableModel) -> None:
        problems: list[Problem] = []
        table.failed.connect(problems.append)
        path = f"/runs/{RUN}/trajectories"
        filled.refuse[path] = Problem(code="store.busy", message="The store is being copied.")
        table.set_query(TrajectoryQuery(filter="x"))
        await until(lambda: problems)
        assert problems[0].code == "store.busy"

    run(with_table(filled, job))


def test_group_list_model(filled: FakeEngine, run: Run, qtmodeltester: Any) -> None:
    async def job() -> None:
        tasks = TaskScope()
        async with EngineClient(filled.port, TOKEN) as client:
            groups = GroupListModel(tasks)
            groups.set_source(partial(client.groups, RUN))
            await until(lambda: groups.is_loaded)
            assert groups.total == 64
            first = groups.record(0)
            assert first is not None
            assert first.step == 8
            assert groups.row_of(8, first.group) == 0
            assert groups.row_of(99, 0) is None
            assert group_words(first).startswith("Step 8")
            qtmodeltester.check(groups)
            await tasks.close()

    run(job())


def test_closing_scope_cancels_fetch(filled: FakeEngine, run: Run) -> None:
    async def job() -> None:
        filled.delay_s = 5
        tasks = TaskScope()
        async with EngineClient(filled.port, TOKEN) as client:
            table = TrajectoryTableModel(tasks)
            table.set_source(partial(client.trajectories, RUN))
            await asyncio.sleep(0.05)
            await tasks.close()
        assert not table.is_loaded

    run(job())


def test_offscreen_pages_are_fetched_again_after_refresh(filled: FakeEngine, run: Run) -> None:
    async def job(table: TrajectoryTableModel) -> None:
        table.sort(0, Qt.SortOrder.DescendingOrder)
        await until(lambda: table.is_loaded)
        await look(table)
        simulation = Simulation(run_id=RUN, train=TRAIN)
        simulation.made = filled.runs[RUN]
        simulation.step(9)
        before = table.total
        table.refresh()
        await until(lambda: table.total == before + 64 and not table._stale)
        rows = await look(table)
        assert len(set(rows)) == len(rows) == table.total

    async def look(table: TrajectoryTableModel) -> list[str]:
        """Read every row and return its id."""
        ids = []
        for row in range(table.total):
            await until(lambda row=row: table.record(row))
            record = table.record(row)
            assert record is not None
            ids.append(record.id)
        return ids

    run(with_table(filled, job))
