"""Group list: the current row stays with the open group."""

import asyncio
from pathlib import Path
from typing import Any

from PySide6.QtCore import QObject, QPoint, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from engine.protocol.requests.runs import TrajectoryQuery
from studio.models.groups import GroupListModel
from studio.pages.trajectories.groups.group_list import GroupPanel
from studio.runtime.tasks import TaskScope
from studio.theme.theme import Theme
from studio.widgets.text.chip import FilterChip
from tests.studio.conftest import Run, until
from tests.studio.fakes.engine import FakeEngine
from tests.studio.fakes.held import hold
from tests.studio.fakes.simulated_run import Simulation
from tests.studio.pages.trajectories.labels.test_labels import (
    RUN,
    TRAIN,
    trajectories_page,
    with_judged_run,
)

__all__ = ["with_judged_run"]


def add_step(engine: FakeEngine, number: int) -> None:
    """Add a step to the active run; its groups are inserted at the top."""
    simulation = Simulation(run_id=RUN, train=TRAIN, judged=True)
    simulation.made = engine.runs[RUN]
    simulation.step(number)


async def wait_for_total(page: Any, total: int) -> None:
    page._lists.refresh()
    await until(lambda: page._groups.total == total and not page.tasks.busy(page._groups._name))


def click(page: Any, row: int) -> None:
    view = page._panel.list
    at = view.visualRect(page._groups.index(row, 0)).center() + QPoint(0, 4)
    QTest.mouseClick(view.viewport(), Qt.MouseButton.LeftButton, pos=at)


def open_group(page: Any) -> tuple[int, int]:
    group = page._siblings.group
    return group.step, group.group


def test_new_groups_move_current_row_and_keep_open_group(
    with_judged_run: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with trajectories_page(with_judged_run, qapp, tmp_path) as (_, page):
            view, opened = page._panel.list, []
            page._panel.group_chosen.connect(opened.append)
            before = open_group(page)
            assert view.currentIndex().row() == 0
            add_step(with_judged_run, 3)
            await wait_for_total(page, 9)
            assert view.currentIndex().row() == 3
            assert [index.row() for index in view.selectedIndexes()] == [3]
            assert (open_group(page), opened) == (before, [])
            click(page, 0)
            await until(lambda: open_group(page)[0] == 3 and not page.tasks.busy("siblings"))
            assert len(opened) == 1, "one click opens once"
            assert view.currentIndex().row() == 0

    run(job())


def test_group_opened_from_table_becomes_current_row(
    with_judged_run: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with trajectories_page(with_judged_run, qapp, tmp_path) as (_, page):
            first = open_group(page)
            page._open_row(page._rows.total - 1)  # a row of the table
            await until(lambda: open_group(page) != first and not page.tasks.busy("siblings"))
            other = page._groups.row_of(*open_group(page))
            assert page._panel.list.currentIndex().row() == other != 0
            page.set_mode(0)
            page._panel._make_current(0)
            click(page, 0)
            await until(lambda: open_group(page) == first)

    run(job())


def test_selected_row_is_opened_when_its_group_arrives(
    with_judged_run: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with trajectories_page(with_judged_run, qapp, tmp_path) as (_, page):
            held = hold(page, "groups")
            page._groups._pages.clear()  # like pages that are off screen after a refresh
            page._panel.choose(4)
            await held.asked.wait()
            held.on.set()
            await until(lambda: page._siblings.group == page._groups.record(4))
            assert page._panel.list.currentIndex().row() == 4

    run(job())


def test_late_group_is_not_shown_under_another_run(
    with_judged_run: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with trajectories_page(with_judged_run, qapp, tmp_path) as (studio, page):
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


def test_filter_chips_fit_in_every_state(qapp: QApplication, qtbot: QtBot) -> None:
    Theme.install(qapp, "dark")
    host = QObject()
    panel = GroupPanel(GroupListModel(TaskScope(host), host))
    qtbot.addWidget(panel)
    panel.resize(panel.width(), 600)
    panel.show()
    for state in ("all", "unscored", "truncated"):
        for labelled in (None, True, False):
            panel.set_query(
                TrajectoryQuery(
                    filter="", signal=False, state=state, split="validation", labelled=labelled
                )
            )
            panel.layout().activate()
            chips = [chip for chip in panel.findChildren(FilterChip) if chip.isVisible()]
            assert len(chips) == 6
            assert all(chip.width() >= chip.sizeHint().width() for chip in chips)
