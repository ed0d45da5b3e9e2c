"""Labelling by keyboard over the fake engine with a real LabelService."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from engine.protocol.config.project import TrainConfig
from engine.protocol.problems import Problem
from engine.protocol.records.labels import Label, Word
from engine.protocol.requests.runs import TrajectoryQuery
from studio.actions.actions import ACTIONS
from studio.actions.keymap import TRAJECTORIES
from studio.app import Studio
from studio.pages.trajectories.page import TrajectoriesPage
from studio.pages.trajectories.views import COLUMNS, READER, TABLE
from tests.studio.conftest import Run, until
from tests.studio.fakes.engine import FakeEngine
from tests.studio.fakes.simulated_run import Simulation
from tests.studio.screenshots.pages import open_project, studio_on

RUN = "01JD5MAMBERKESTREL00000000"
TRAIN = TrainConfig(steps=8, groups=3, group_size=4, validate_every=8)
Key = Qt.Key
SHIFT = Qt.KeyboardModifier.ShiftModifier
CTRL = Qt.KeyboardModifier.ControlModifier


@pytest.fixture
def with_judged_run(engine: FakeEngine) -> FakeEngine:
    simulation = Simulation(run_id=RUN, train=TRAIN, seed=12, judged=True)
    simulation.begin()
    for step in (1, 2):
        simulation.step(step)
    engine.add_project("inbox-scout")
    engine.add_run(simulation.made)
    return engine


@asynccontextmanager
async def trajectories_page(
    engine: FakeEngine, app: QApplication, folder: Path
) -> AsyncIterator[tuple[Studio, TrajectoriesPage]]:
    async with studio_on(engine, app, folder) as studio:
        await open_project(studio, engine, "inbox-scout")
        studio.window.resize(1440, 900)
        studio.window.show_page("trajectories")
        page: Any = studio.pages["trajectories"]
        await until(lambda: page._siblings is not None and not page.tasks.busy("siblings"))

        def is_focused() -> bool:
            """Ask for the focus until it is there: a window that closes may take it once more."""
            studio.window.activateWindow()
            page._home().setFocus()
            return QApplication.focusWidget() is page._home()

        await until(is_focused)
        yield studio, page


def press_key(page: TrajectoriesPage, key: Qt.Key, modifiers: Any = None) -> None:
    focus = QApplication.focusWidget() or page._home()
    QTest.keyClick(focus, key, modifiers or Qt.KeyboardModifier.NoModifier)


def active_labels(engine: FakeEngine) -> list[Label]:
    return [label for label in engine.labels[RUN].kept if label.holds()]


async def commit_label(page: TrajectoriesPage, engine: FakeEngine, count: int) -> None:
    press_key(page, Key.Key_Return)
    await until(lambda: len(active_labels(engine)) == count and not page._labels.labelling.draft)
    await until(lambda: not (page.tasks.busy("label") or page.tasks.busy("siblings")))


def test_label_is_previewed_committed_shown_and_undone(
    with_judged_run: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with trajectories_page(with_judged_run, qapp, tmp_path) as (studio, page):
            bar, labelling = page._bar, page._labels.labelling
            before = [one.advantage for one in labelling.attempts]
            press_key(page, Key.Key_2)
            press_key(page, Key.Key_3, SHIFT)
            assert not active_labels(with_judged_run), "nothing is committed before Enter"
            await until(lambda: labelling.preview)
            assert bar.sentence().startswith("Advantages change for ")
            assert "Applies to step 2." in bar.sentence()
            preview = [one.new_advantage for one in labelling.outcomes()]
            assert preview != before
            await commit_label(page, with_judged_run, 1)
            await until(lambda: [one.advantage for one in labelling.attempts] == preview)
            kinds = [
                (word.kind, word.trajectory_id) for word in active_labels(with_judged_run)[0].words
            ]
            names = [one.id for one in labelling.attempts]
            assert kinds == [("best", names[1]), ("worst", names[2])]
            assert page._labels.toast.words().startswith(
                "2 labelled best, 3 labelled worst. Advantages"
            )
            assert page._siblings.labels
            assert not labelling.draft
            press_key(page, Key.Key_U)
            await until(lambda: [one.advantage for one in labelling.attempts] == before)
            assert not active_labels(with_judged_run)
            press_key(page, Key.Key_Z, CTRL | SHIFT)
            await until(lambda: [one.advantage for one in labelling.attempts] == preview)
            await until(lambda: studio.session.run.state.labelled)

    run(job())


def test_draft_keys_are_undone_one_by_one_and_all_at_once(
    with_judged_run: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with trajectories_page(with_judged_run, qapp, tmp_path) as (_, page):
            draft = lambda: page._labels.labelling.draft  # noqa: E731
            focused = page._columns.record().id
            press_key(page, Key.Key_V)
            press_key(page, Key.Key_G)
            assert draft().kinds_of(focused) == ["veto", "gold"]
            press_key(page, Key.Key_U)
            assert draft().kinds_of(focused) == ["veto"]
            press_key(page, Key.Key_Z, CTRL | SHIFT)
            assert draft().kinds_of(focused) == ["veto", "gold"]
            press_key(page, Key.Key_X)
            assert draft().kinds_of(focused) == ["exclude", "gold"], "exclude replaces the veto"
            press_key(page, Key.Key_Escape)
            assert not draft()
            press_key(page, Key.Key_9)
            assert "no trajectory 9" in page._bar.sentence()
            press_key(page, Key.Key_Right)
            press_key(page, Key.Key_Space)
            press_key(page, Key.Key_Left)
            press_key(page, Key.Key_Space)
            await commit_label(page, with_judged_run, 1)
            orders = [word.order for word in active_labels(with_judged_run)[0].words]
            assert all(len(order[0]) == 2 for order in orders)
            assert len(orders) == 2, "one order for each of the others"
            facts = page._columns._columns[0].head._facts
            await until(lambda: [chip.words for chip in facts.chips] == ["tied for best"])

    run(job())


def test_keys_typed_into_a_field_are_not_labels(
    with_judged_run: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with trajectories_page(with_judged_run, qapp, tmp_path) as (_, page):
            focused = page._columns.record().id
            press_key(page, Key.Key_N)
            QTest.keyClicks(QApplication.focusWidget(), "very good x 1")
            assert not page._labels.labelling.draft
            press_key(page, Key.Key_Return)
            assert page._labels.labelling.draft.notes == {focused: "very good x 1"}
            press_key(page, Key.Key_S)
            QTest.keyClicks(QApplication.focusWidget(), "7x")
            press_key(page, Key.Key_Return)
            assert page._bar.asking(), "7x is not a number"
            QApplication.focusWidget().clear()
            QTest.keyClicks(QApplication.focusWidget(), "85")
            press_key(page, Key.Key_Return)
            assert page._labels.labelling.draft.scores == {focused: 0.85}
            press_key(page, Key.Key_S)
            press_key(page, Key.Key_Escape)
            assert page._labels.labelling.draft, "Escape in the field leaves only the field"
            await commit_label(page, with_judged_run, 1)
            assert [word.kind for word in active_labels(with_judged_run)[0].words] == [
                "score",
                "note",
            ]
            press_key(page, Key.Key_Slash)
            QTest.keyClicks(QApplication.focusWidget(), "vg")
            assert not page._labels.labelling.draft
            page._panel.bar.input.clear()

    run(job())


def test_order_is_set_by_keys_with_selected_effect(
    with_judged_run: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with trajectories_page(with_judged_run, qapp, tmp_path) as (_, page):
            order = [one.id for one in page._columns.order()]
            press_key(page, Key.Key_Right, CTRL)
            expected = [order[1], order[0], *order[2:]]
            assert [layer[0] for layer in page._labels.labelling.draft.order] == expected
            page._bar.effect_chosen.emit("none")
            await until(lambda: "Agreement only" in page._bar.sentence())
            press_key(page, Key.Key_L)
            await commit_label(page, with_judged_run, 1)
            label = active_labels(with_judged_run)[0]
            assert (label.effect, label.teaches) == ("none", True)
            assert page._labels.labelling.effect == "reward", "the effect applies to one label only"

    run(job())


def test_rejected_label_is_reported_in_bar_and_kept(
    with_judged_run: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with trajectories_page(with_judged_run, qapp, tmp_path) as (studio, page):
            problem = Problem(code="label.failed_attempt", message="Attempt 1 cannot be scored.")
            with_judged_run.refuse[f"/runs/{RUN}/labels"] = problem
            press_key(page, Key.Key_F)
            press_key(page, Key.Key_Return)
            await until(lambda: "cannot be scored" in page._bar.sentence())
            await until(lambda: not page.tasks.busy("label"))
            assert not studio.notifier.words()
            assert page._labels.labelling.draft, "the draft is kept"
            with_judged_run.refuse.clear()
            press_key(page, Key.Key_Escape)
            press_key(page, Key.Key_U)
            await until(lambda: "no label to undo" in page._bar.sentence())

    run(job())


def test_label_keys_depend_on_view(
    with_judged_run: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with trajectories_page(with_judged_run, qapp, tmp_path) as (_, page):
            press_key(page, Key.Key_T)
            assert page._view == TABLE
            assert page._bar.isHidden()
            press_key(page, Key.Key_V)
            assert not page._labels.labelling.draft
            press_key(page, Key.Key_Escape)
            assert page._view == COLUMNS
            press_key(page, Key.Key_R)
            assert page._view == READER
            assert page._bar.isHidden()
            press_key(page, Key.Key_V)
            assert not page._bar.isHidden(), "the bar shows the pending label"
            press_key(page, Key.Key_Escape)
            page.show_query(TrajectoryQuery(labelled=False))
            await until(lambda: page._groups.is_loaded and page._groups.total == 6)
        listed = {spec.id for spec in ACTIONS}
        assert {row.id for row in TRAJECTORIES} <= listed

    run(job())


def test_column_head_can_be_dragged_to_its_rank(
    with_judged_run: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with trajectories_page(with_judged_run, qapp, tmp_path) as (_, page):
            columns = page._columns
            order = [one.id for one in columns.order()]
            head, target = columns._columns[0].head, columns._columns[1].head
            start, end = QPoint(60, 20), head.mapFromGlobal(target.mapToGlobal(QPoint(230, 20)))
            QTest.mousePress(head, Qt.MouseButton.LeftButton, pos=start)
            QTest.mouseMove(head, start + QPoint(40, 0))
            QTest.mouseMove(head, end)
            assert columns._drop == 2
            QTest.mouseRelease(head, Qt.MouseButton.LeftButton, pos=end)
            layers = [layer[0] for layer in page._labels.labelling.draft.order]
            assert layers == [order[1], order[0], *order[2:]]
            assert columns._drop == -1

    run(job())


def test_repeated_enter_commits_label_once(
    with_judged_run: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with trajectories_page(with_judged_run, qapp, tmp_path) as (_, page):
            press_key(page, Key.Key_1)
            for _ in range(3):
                press_key(page, Key.Key_Return)
            await commit_label(page, with_judged_run, 1)
            assert len(with_judged_run.labels[RUN].kept) == 1
            assert "Advantage" in page._labels.toast.words()

    run(job())


def test_label_of_another_client_is_shown_and_draft_kept(
    with_judged_run: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with trajectories_page(with_judged_run, qapp, tmp_path) as (studio, page):
            await until(lambda: page._lists._seen[1] is not None)
            press_key(page, Key.Key_F)
            await until(lambda: page._labels.labelling.preview)
            group, first = page._siblings.group, page._labels.labelling.attempts[0]
            word = Word(kind="veto", trajectory_id=first.id)
            label = Label(id="cli", step=group.step, group=group.group, words=(word,), who="ada")
            await studio.session.client.add_label(RUN, label)
            await until(lambda: page._siblings.labels)
            assert page._labels.labelling.attempts[0].reward == 0
            assert page._labels.labelling.draft
            await until(lambda: page._labels.labelling.preview)

    run(job())
