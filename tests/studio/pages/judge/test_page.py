"""The Judge page over the fake engine: editing, pricing, trying, grading."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from engine.protocol.config.project import TrainConfig
from engine.protocol.problems import Problem
from studio.pages.judge.page import presets, text_of
from studio.store.projects import rubric
from tests.studio.conftest import Run, until
from tests.studio.fakes.engine import FakeEngine
from tests.studio.fakes.held import hold
from tests.studio.fakes.simulated_run import Simulation
from tests.studio.screenshots.pages import open_project, studio_on


@pytest.fixture
def lab(engine: FakeEngine) -> FakeEngine:
    train = TrainConfig(steps=8, groups=3, group_size=4, validate_every=8)
    simulation = Simulation(train=train, seed=12)
    simulation.begin()
    for step in (1, 2):
        simulation.step(step)
    engine.add_project("inbox-scout")
    engine.add_run(simulation.made)
    return engine


@asynccontextmanager
async def judging(engine: FakeEngine, app: QApplication, folder: Path) -> AsyncIterator[Any]:
    async with studio_on(engine, app, folder) as studio:
        await open_project(studio, engine, "inbox-scout")
        studio.window.resize(1440, 900)
        studio.window.show_page("judge")
        page: Any = studio.pages["judge"]
        await until(lambda: page._view is not None and page._groups == 6)
        studio.window.activateWindow()
        yield page


def price(page: Any) -> str:
    return str(page.choice.price.accessibleName())


def test_the_price_is_on_the_button_and_a_trial_shows_what_changes(
    lab: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with judging(lab, qapp, tmp_path) as page:
            await until(lambda: "6 calls" in price(page))
            assert "Re-judge 6 groups" in price(page)
            assert "$0.04" in price(page)
            page.choice.price.pressed.emit()
            await until(lambda: lab.trials.trials and not page.tasks.busy("trial"))
            charts = [page.trial._row.itemAt(n).widget() for n in range(page.trial._row.count())]
            assert len(charts) == 6
            opened: list[tuple[str, int, int]] = []
            page.group_wanted.connect(lambda *place: opened.append(place))
            charts[0].setFocus()
            QTest.keyClick(charts[0], Qt.Key.Key_Return)
            assert opened[0][0] == "train"
            lab.trials.cached = 6
            page._price()
            await until(lambda: "free" in price(page))

    run(job())


def test_a_trial_can_be_cancelled_and_says_how_far_it_is(
    lab: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        lab.trials.pause_s = 0.2
        async with judging(lab, qapp, tmp_path) as page:
            await until(lambda: "6 calls" in price(page))
            page.choice.price.pressed.emit()
            await until(lambda: "Judging 1 of 6" in price(page))
            page.choice.price.cancel_requested.emit()
            await until(lambda: not page.tasks.busy("trial") and "6 calls" in price(page))
            assert page.trial._row.count() < 6

    run(job())


def test_editing_makes_versions_and_shows_what_changed(
    lab: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with judging(lab, qapp, tmp_path) as page:
            editor = page.editor
            assert not editor.dirty
            before = editor.source
            editor.text.setFocus()
            editor.text.moveCursor(editor.text.textCursor().MoveOperation.End)
            QTest.keyClicks(editor.text, "Shorter is better.")
            assert editor.dirty
            assert editor.text._changed
            editor._turn("changes")
            assert "+ Shorter is better." in editor._read.toPlainText()
            editor._turn("changes")
            editor._move(0, 0.5)  # a boundary dragged
            parts = rubric.parts_of(editor.source)
            assert parts is not None
            assert rubric.shares(parts)[0] == pytest.approx(0.5)
            QTest.keyClick(editor.text, Qt.Key.Key_S, Qt.KeyboardModifier.ControlModifier)
            editor.save()
            await until(lambda: len(lab.trials.sources) == 3 and not editor.dirty)
            assert lab.trials.sources[-1] != before
            assert editor._version.words() == "Rubric 3"
            editor._turn("sent")
            await until(lambda: "attempt BK" in editor._read.toPlainText())

    run(job())


def test_a_refused_rubric_is_said_and_kept(
    lab: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with judging(lab, qapp, tmp_path) as page:
            told: list[Problem] = []
            page.session.problem_raised.connect(told.append)
            lab.refuse["/rubric"] = Problem(code="rubric.wrong", message="It cannot be used.")
            page.editor.text.insertPlainText("x")
            page.editor.save()
            await until(lambda: told)
            assert page.editor.dirty

    run(job())


def test_an_unsaved_rubric_stays_with_its_project(
    lab: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        lab.add_project("second")
        async with studio_on(lab, qapp, tmp_path) as studio:
            page: Any = studio.pages["judge"]

            async def turn_to(name: str) -> None:
                studio.window.show_page("home")
                await open_project(studio, lab, name)
                studio.window.show_page("judge")
                await until(lambda: page.editor.isEnabled() and page._view is not None)
                await until(lambda: not page.tasks.busy("rubric"))

            await turn_to("inbox-scout")
            stored = page.editor.source
            page.editor.text.insertPlainText("Mine. ")
            mine = page.editor.source
            await turn_to("second")
            assert page.editor.source == stored
            page.editor.text.undo()
            assert page.editor.source == stored, "an undo brings no other project's back"
            page.save()
            assert not page.tasks.busy("save")
            await turn_to("inbox-scout")
            assert page.editor.source == mine
            assert page.editor.dirty
            page.editor.discard()
            assert page.editor.source == stored

    run(job())


def test_trust_is_shown_with_its_evidence(
    lab: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with judging(lab, qapp, tmp_path) as page:
            card = page.agreement
            await until(lambda: card._figure.words() == "0.71")
            assert "0.62 to 0.79" in card._under.words()
            assert "0.83" in card._ceiling.words()
            assert "Preference flips when the order changes 6%" in card._facts.accessibleName()
            card._show.click()
            assert page._sheet.is_open()
            card._suggest.click()
            await until(lambda: page._suggestion.is_open())
            assert "+ A later change wins." in page._suggestion._text.toPlainText()
            page._suggestion._take.click()
            assert page.editor.dirty

    run(job())


def test_a_living_run_can_take_the_saved_rubric(
    engine: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    train = TrainConfig(steps=8, groups=3, group_size=4, validate_every=8)
    simulation = Simulation(train=train, seed=12, judged=True)
    simulation.begin()
    simulation.step(1)
    engine.add_project("inbox-scout")
    engine.add_run(simulation.made)

    async def job() -> None:
        async with studio_on(engine, qapp, tmp_path) as studio:
            await open_project(studio, engine, "inbox-scout")
            studio.window.show_page("judge")
            page: Any = studio.pages["judge"]
            use = page.editor._use
            await until(lambda: use.isVisible())
            assert use.words() == "Use from step 2"
            page.editor.text.insertPlainText("x")
            assert not use.isVisible(), "what is not saved cannot be used"
            page.editor.discard()
            use.click()
            await until(lambda: any(c.action == "use_rubric" for c in engine.commands))
            await until(lambda: not use.isVisible())
            assert studio.session.run.state.rubric == engine.trials.sources[-1]

    run(job())


def test_without_a_judge_or_a_run_the_page_says_what_comes_first(
    engine: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        engine.trials.sources, engine.trials.judged = [], False
        engine.add_project("inbox-scout")
        async with studio_on(engine, qapp, tmp_path) as studio:
            await open_project(studio, engine, "inbox-scout")
            studio.window.show_page("judge")
            page: Any = studio.pages["judge"]
            await until(lambda: page._view is not None)
            await until(lambda: "No run has stored groups" in page.choice._time.words())
            assert page._starter_box.isVisible()
            assert "Label 5 more groups" in page.agreement._under.words()
            assert not page.grading._next.isEnabled()
            page._starters.itemAt(0).widget().click()
            assert page.editor.source == text_of(presets()[0][0])
            await asyncio.sleep(0)

    run(job())


@pytest.mark.parametrize("file", [file for file, _ in presets()])
def test_every_preset_reads(file: str) -> None:
    from engine.judge.prompting.rubric import parse_rubric

    assert parse_rubric(text_of(file)).text
    assert rubric.parts_of(text_of(file)) is not None


def another_run(engine: FakeEngine) -> str:
    """Of the same project, with nothing stored yet."""
    simulation = Simulation("01JD5MQUIETHERON0000000000", "quiet-heron")
    simulation.begin()
    return engine.add_run(simulation.made).id


def test_a_trial_ends_where_another_run_is_chosen(
    lab: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        other = another_run(lab)
        async with judging(lab, qapp, tmp_path) as page:
            await until(lambda: "6 calls" in price(page))
            lab.trials.go_on.clear()
            page.choice.price.pressed.emit()
            await until(lambda: page.trial._row.count() == 1)
            page.session.select_run(other)
            assert page.trial._row.count() == 0
            lab.trials.go_on.set()
            await until(lambda: page._groups == 0 and "Judging" not in price(page))
            assert page.trial._row.count() == 0
            assert not page.tasks.busy("trial")

    run(job())


def test_a_group_to_grade_is_of_the_run_that_is_looked_at(
    lab: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        other = another_run(lab)
        async with judging(lab, qapp, tmp_path) as page:
            opened: list[object] = []
            page.grading_wanted.connect(lambda *place: opened.append(place))
            held = hold(page, "groups")
            page.grade_next()
            await held.asked.wait()
            asking = page.tasks._jobs["next"]
            page.session.select_run(other)
            held.on.set()
            await asyncio.wait([asking])
            assert not opened

    run(job())


def test_a_rubric_that_is_saved_late_is_not_shown_as_that_of_another_project(
    lab: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        lab.add_project("tiles")
        async with judging(lab, qapp, tmp_path) as page:
            page.editor.text.set_text("# Tiles are merged, not pushed around")
            held = hold(page, "save_rubric")
            page.save()
            await held.asked.wait()
            page.session.open_project(str(lab.workspace / "tiles"), "judge")
            await until(lambda: page._project.endswith("tiles") and not page.tasks.busy("rubric"))
            before = page._view
            held.on.set()
            await until(lambda: not page.tasks.busy("save"))
            assert page._view is before
            assert "Tiles are merged" not in page.editor.source

    run(job())
