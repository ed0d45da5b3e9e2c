"""The list of groups: the row that is current is that of the group that is looked at."""

import asyncio
from pathlib import Path
from typing import Any

from PySide6.QtCore import QPoint, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from tests.studio.conftest import Run, until
from tests.studio.fakes.engine import FakeEngine
from tests.studio.fakes.held import hold
from tests.studio.fakes.simulated_run import Simulation
from tests.studio.pages.trajectories.labels.test_labels import RUN, TRAIN, judged, reading

__all__ = ["judged"]


def step(engine: FakeEngine, number: int) -> None:
    """One more of the living run: its groups come in at the top."""
    simulation = Simulation(run_id=RUN, train=TRAIN, judged=True)
    simulation.made = engine.runs[RUN]
    simulation.step(number)


async def grown(page: Any, total: int) -> None:
    page._refresh_lists()
    await until(lambda: page._groups.total == total and not page.tasks.busy(page._groups._name))


def click(page: Any, row: int) -> None:
    view = page._panel.list
    at = view.visualRect(page._groups.index(row, 0)).center() + QPoint(0, 4)
    QTest.mouseClick(view.viewport(), Qt.MouseButton.LeftButton, pos=at)


def place(page: Any) -> tuple[int, int]:
    group = page._siblings.group
    return group.step, group.group


def test_new_groups_above_move_the_current_row_and_not_what_is_looked_at(
    judged: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with reading(judged, qapp, tmp_path) as (_, page):
            view, opened = page._panel.list, []
            page._panel.group_chosen.connect(opened.append)
            before = place(page)
            assert view.currentIndex().row() == 0
            step(judged, 3)
            await grown(page, 9)
            assert view.currentIndex().row() == 3
            assert [index.row() for index in view.selectedIndexes()] == [3]
            assert (place(page), opened) == (before, [])
            click(page, 0)
            await until(lambda: place(page)[0] == 3 and not page.tasks.busy("siblings"))
            assert len(opened) == 1, "one click asks once"
            assert view.currentIndex().row() == 0

    run(job())


def test_a_group_that_was_opened_elsewhere_gives_its_row_back_to_a_click(
    judged: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with reading(judged, qapp, tmp_path) as (_, page):
            first = place(page)
            page._open_row(page._rows.total - 1)  # of the table
            await until(lambda: place(page) != first and not page.tasks.busy("siblings"))
            other = page._groups.row_of(*place(page))
            assert page._panel.list.currentIndex().row() == other != 0
            page.set_mode(0)
            page._panel._make_current(0)
            click(page, 0)
            await until(lambda: place(page) == first)

    run(job())


def test_a_row_that_is_chosen_before_its_group_is_here_is_opened_when_it_is(
    judged: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with reading(judged, qapp, tmp_path) as (_, page):
            held = hold(page, "groups")
            page._groups._pages.clear()  # as those that are not on screen, after a refresh
            page._panel.choose(4)
            await held.asked.wait()
            held.on.set()
            await until(lambda: page._siblings.group == page._groups.record(4))
            assert page._panel.list.currentIndex().row() == 4

    run(job())


def test_a_group_that_is_told_late_is_not_shown_under_another_run(
    judged: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with reading(judged, qapp, tmp_path) as (studio, page):
            held = hold(page, "siblings")
            page._panel.move(1)
            await held.asked.wait()
            asking = page.tasks._jobs["siblings"]
            studio.session.select_run("")
            held.on.set()
            await asyncio.wait([asking])
            assert page._siblings is None
            assert not page._labels.labelling.attempts

    run(job())
