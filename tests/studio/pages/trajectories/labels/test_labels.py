"""Labelling by keys over the fake engine, whose labels are the real LabelService's."""

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
def judged(engine: FakeEngine) -> FakeEngine:
    simulation = Simulation(run_id=RUN, train=TRAIN, seed=12, judged=True)
    simulation.begin()
    for step in (1, 2):
        simulation.step(step)
    engine.add_project("inbox-scout")
    engine.add_run(simulation.made)
    return engine


@asynccontextmanager
async def reading(
    engine: FakeEngine, app: QApplication, folder: Path
) -> AsyncIterator[tuple[Studio, TrajectoriesPage]]:
    async with studio_on(engine, app, folder) as studio:
        await open_project(studio, engine, "inbox-scout")
        studio.window.resize(1440, 900)
        studio.window.show_page("trajectories")
        page: Any = studio.pages["trajectories"]
        await until(lambda: page._siblings is not None and not page.tasks.busy("siblings"))
        studio.window.activateWindow()
        page._home().setFocus()
        await until(lambda: QApplication.focusWidget() is page._home())
        yield studio, page


def press(page: TrajectoriesPage, key: Qt.Key, modifiers: Any = None) -> None:
    focus = QApplication.focusWidget() or page._home()
    QTest.keyClick(focus, key, modifiers or Qt.KeyboardModifier.NoModifier)


def held(engine: FakeEngine) -> list[Label]:
    return [label for label in engine.labels[RUN].kept if label.holds()]


async def applied(page: TrajectoriesPage, engine: FakeEngine, count: int) -> None:
    press(page, Key.Key_Return)
    await until(lambda: len(held(engine)) == count and not page._labels.labelling.draft)
    await until(lambda: not (page.tasks.busy("label") or page.tasks.busy("siblings")))


def test_a_label_by_keys_is_previewed_committed_shown_and_undone(
    judged: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with reading(judged, qapp, tmp_path) as (studio, page):
            bar, labelling = page._bar, page._labels.labelling
            before = [one.advantage for one in labelling.attempts]
            press(page, Key.Key_2)
            press(page, Key.Key_3, SHIFT)
            assert not held(judged), "nothing is committed before Enter"
            await until(lambda: labelling.preview)
            assert bar.sentence().startswith("Advantages change for ")
            assert "Applies to step 2." in bar.sentence()
            preview = [one.new_advantage for one in labelling.outcomes()]
            assert preview != before
            await applied(page, judged, 1)
            await until(lambda: [one.advantage for one in labelling.attempts] == preview)
            kinds = [(word.kind, word.trajectory_id) for word in held(judged)[0].words]
            names = [one.id for one in labelling.attempts]
            assert kinds == [("best", names[1]), ("worst", names[2])]
            assert page._labels.toast.words().startswith(
                "2 labelled best, 3 labelled worst. Advantages"
            )
            assert page._siblings.labels
            assert not labelling.draft
            press(page, Key.Key_U)
            await until(lambda: [one.advantage for one in labelling.attempts] == before)
            assert not held(judged)
            press(page, Key.Key_Z, CTRL | SHIFT)
            await until(lambda: [one.advantage for one in labelling.attempts] == preview)
            await until(lambda: studio.session.run.state.labelled)

    run(job())


def test_keys_are_taken_back_one_by_one_and_all_at_once(
    judged: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with reading(judged, qapp, tmp_path) as (_, page):
            draft = lambda: page._labels.labelling.draft  # noqa: E731
            focused = page._columns.record().id
            press(page, Key.Key_V)
            press(page, Key.Key_G)
            assert draft().kinds_of(focused) == ["veto", "gold"]
            press(page, Key.Key_U)
            assert draft().kinds_of(focused) == ["veto"]
            press(page, Key.Key_Z, CTRL | SHIFT)
            assert draft().kinds_of(focused) == ["veto", "gold"]
            press(page, Key.Key_X)
            assert draft().kinds_of(focused) == ["exclude", "gold"], "a veto makes way"
            press(page, Key.Key_Escape)
            assert not draft()
            press(page, Key.Key_9)
            assert "no trajectory 9" in page._bar.sentence()
            press(page, Key.Key_Right)
            press(page, Key.Key_Space)
            press(page, Key.Key_Left)
            press(page, Key.Key_Space)
            await applied(page, judged, 1)
            orders = [word.order for word in held(judged)[0].words]
            assert all(len(order[0]) == 2 for order in orders)
            assert len(orders) == 2, "above each of the others"
            facts = page._columns._columns[0].head._facts
            await until(lambda: [chip.words for chip in facts.chips] == ["tied for best"])

    run(job())


def test_letters_typed_into_a_field_are_no_labels(
    judged: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with reading(judged, qapp, tmp_path) as (_, page):
            focused = page._columns.record().id
            press(page, Key.Key_N)
            QTest.keyClicks(QApplication.focusWidget(), "very good x 1")
            assert not page._labels.labelling.draft
            press(page, Key.Key_Return)
            assert page._labels.labelling.draft.notes == {focused: "very good x 1"}
            press(page, Key.Key_S)
            QTest.keyClicks(QApplication.focusWidget(), "7x")
            press(page, Key.Key_Return)
            assert page._bar.asking(), "7x is no number"
            QApplication.focusWidget().clear()
            QTest.keyClicks(QApplication.focusWidget(), "85")
            press(page, Key.Key_Return)
            assert page._labels.labelling.draft.scores == {focused: 0.85}
            press(page, Key.Key_S)
            press(page, Key.Key_Escape)
            assert page._labels.labelling.draft, "Escape in the field leaves only the field"
            await applied(page, judged, 1)
            assert [word.kind for word in held(judged)[0].words] == ["score", "note"]
            press(page, Key.Key_Slash)
            QTest.keyClicks(QApplication.focusWidget(), "vg")
            assert not page._labels.labelling.draft
            page._panel.search.clear()

    run(job())


def test_an_order_by_keys_and_an_effect(
    judged: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with reading(judged, qapp, tmp_path) as (_, page):
            order = [one.id for one in page._columns.order()]
            press(page, Key.Key_Right, CTRL)
            expected = [order[1], order[0], *order[2:]]
            assert [layer[0] for layer in page._labels.labelling.draft.order] == expected
            page._bar.effect_chosen.emit("none")
            await until(lambda: "Agreement only" in page._bar.sentence())
            press(page, Key.Key_L)
            await applied(page, judged, 1)
            label = held(judged)[0]
            assert (label.effect, label.teaches) == ("none", True)
            assert page._labels.labelling.effect == "reward", "chosen for each label"

    run(job())


def test_a_refusal_is_said_once_at_the_bar(
    judged: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with reading(judged, qapp, tmp_path) as (studio, page):
            problem = Problem(code="label.failed_attempt", message="Attempt 1 cannot be scored.")
            judged.refuse[f"/runs/{RUN}/labels"] = problem
            press(page, Key.Key_F)
            press(page, Key.Key_Return)
            await until(lambda: "cannot be scored" in page._bar.sentence())
            await until(lambda: not page.tasks.busy("label"))
            assert not studio.notifier.words()
            assert page._labels.labelling.draft, "what was said is kept"
            judged.refuse.clear()
            press(page, Key.Key_Escape)
            press(page, Key.Key_U)
            await until(lambda: "nothing to undo" in page._bar.sentence())

    run(job())


def test_keys_belong_to_their_view_and_to_the_sheet(
    judged: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with reading(judged, qapp, tmp_path) as (_, page):
            press(page, Key.Key_T)
            assert page._view == TABLE
            assert page._bar.isHidden()
            press(page, Key.Key_V)
            assert not page._labels.labelling.draft
            press(page, Key.Key_Escape)
            assert page._view == COLUMNS
            press(page, Key.Key_R)
            assert page._view == READER
            assert page._bar.isHidden()
            press(page, Key.Key_V)
            assert not page._bar.isHidden(), "what waits for Enter is in sight"
            press(page, Key.Key_Escape)
            page.show_query(TrajectoryQuery(labelled=False))
            await until(lambda: page._groups.is_loaded and page._groups.total == 6)
        listed = {spec.id for spec in ACTIONS}
        assert {row.id for row in TRAJECTORIES} <= listed

    run(job())


def test_a_head_is_dragged_to_its_rank(
    judged: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with reading(judged, qapp, tmp_path) as (_, page):
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


def test_a_slow_preview_never_blocks_and_a_fast_enter_commits_once(
    judged: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with reading(judged, qapp, tmp_path) as (_, page):
            press(page, Key.Key_1)
            for _ in range(3):
                press(page, Key.Key_Return)
            await applied(page, judged, 1)
            assert len(judged.labels[RUN].kept) == 1
            assert "Advantage" in page._labels.toast.words()

    run(job())


def test_what_another_one_says_is_shown_and_the_draft_kept(
    judged: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with reading(judged, qapp, tmp_path) as (studio, page):
            await until(lambda: page._seen[1] is not None)
            press(page, Key.Key_F)
            await until(lambda: page._labels.labelling.preview)
            group, first = page._siblings.group, page._labels.labelling.attempts[0]
            word = Word(kind="veto", trajectory_id=first.id)
            said = Label(id="cli", step=group.step, group=group.group, words=(word,), who="ada")
            await studio.session.client.add_label(RUN, said)
            await until(lambda: page._siblings.labels)
            assert page._labels.labelling.attempts[0].reward == 0
            assert page._labels.labelling.draft
            await until(lambda: page._labels.labelling.preview)

    run(job())
