"""Judge page over the fake engine: editing, pricing, trials, grading."""

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
from engine.protocol.records.judging import JudgeOption
from studio.pages.judge.judge_settings import OTHER
from studio.pages.judge.starters import presets, text_of
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
async def judge_page(engine: FakeEngine, app: QApplication, folder: Path) -> AsyncIterator[Any]:
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


def test_button_shows_price_and_trial_shows_changes(
    lab: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with judge_page(lab, qapp, tmp_path) as page:
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


def test_trial_shows_progress_and_can_be_cancelled(
    lab: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        lab.trials.pause_s = 0.2
        async with judge_page(lab, qapp, tmp_path) as page:
            await until(lambda: "6 calls" in price(page))
            page.choice.price.pressed.emit()
            await until(lambda: "Judging 1 of 6" in price(page))
            page.choice.price.cancel_requested.emit()
            await until(lambda: not page.tasks.busy("trial") and "6 calls" in price(page))
            assert page.trial._row.count() < 6

    run(job())


def test_edits_create_versions_and_show_changes(
    lab: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with judge_page(lab, qapp, tmp_path) as page:
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
            editor._move(0, 0.5)  # as when a boundary is dragged
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


def test_rejected_rubric_is_reported_and_stays_unsaved(
    lab: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with judge_page(lab, qapp, tmp_path) as page:
            problems: list[Problem] = []
            page.session.problem_raised.connect(problems.append)
            lab.refuse["/rubric"] = Problem(code="rubric.wrong", message="It cannot be used.")
            page.editor.text.insertPlainText("x")
            page.editor.save()
            await until(lambda: problems)
            assert page.editor.dirty

    run(job())


def test_unsaved_rubric_stays_with_its_project(
    lab: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        lab.add_project("second")
        async with studio_on(lab, qapp, tmp_path) as studio:
            page: Any = studio.pages["judge"]

            async def open_judge(name: str) -> None:
                studio.window.show_page("home")
                await open_project(studio, lab, name)
                studio.window.show_page("judge")
                await until(lambda: page.editor.isEnabled() and page._view is not None)
                await until(lambda: not page.tasks.busy("rubric"))

            await open_judge("inbox-scout")
            stored = page.editor.source
            page.editor.text.insertPlainText("Mine. ")
            mine = page.editor.source
            await open_judge("second")
            assert page.editor.source == stored
            page.editor.text.undo()
            assert page.editor.source == stored, "undo does not restore another project's text"
            page.save()
            assert not page.tasks.busy("save")
            await open_judge("inbox-scout")
            assert page.editor.source == mine
            assert page.editor.dirty
            page.editor.discard()
            assert page.editor.source == stored

    run(job())


def test_agreement_is_shown_with_evidence(
    lab: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with judge_page(lab, qapp, tmp_path) as page:
            card = page.agreement
            await until(lambda: card._figure.words() == "0.71")
            assert "0.62 to 0.79" in card._under.words()
            assert "0.83" in card._ceiling.words()
            assert "Pairs that flip between passes 6%" in card._facts.accessibleName()
            card._show.click()
            assert page._sheet.is_open()
            card._suggest.click()
            await until(lambda: page._suggestion.is_open())
            assert "+ A later change wins." in page._suggestion._text.toPlainText()
            page._suggestion._take.click()
            assert page.editor.dirty

    run(job())


def test_saved_rubric_can_be_used_in_active_run(
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
            assert not use.isVisible(), "an unsaved rubric cannot be used"
            page.editor.discard()
            use.click()
            await until(lambda: any(c.action == "use_rubric" for c in engine.commands))
            await until(lambda: not use.isVisible())
            assert studio.session.run.state.rubric == engine.trials.sources[-1]

    run(job())


def test_page_without_judge_or_run_shows_first_steps(
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
            assert page._starters.isVisible()
            assert "Label 5 more groups" in page.agreement._under.words()
            assert not page.grading._next.isEnabled()
            engine.trials.options = []
            page.choice._search.click()
            await until(lambda: "No model server was found" in page.choice._note.words())
            local = JudgeOption(
                model="openai/qwen3", title="qwen3", base_url="http://127.0.0.1:8000/v1",
                where="vLLM on this machine",
            )  # fmt: skip
            engine.trials.options = [local]
            page.choice._search.click()
            await until(lambda: "1 model found: vLLM" in page.choice._note.words())
            assert page.choice._pick._box.findData("openai/qwen3") >= 0
            page.choice._pick.edited.emit(OTHER)
            page.choice._name.set_value("openai/house")
            page.choice._base.set_value("http://10.0.0.7:9000/v1")
            QTest.keyClick(page.choice._base.editor, Qt.Key.Key_Return)
            await until(lambda: page.choice._shown == ("openai/house", "http://10.0.0.7:9000/v1"))
            page._starters.grid.itemAt(0).widget().click()
            assert page.editor.source == text_of(presets()[0][0])
            await asyncio.sleep(0)

    run(job())


@pytest.mark.parametrize("file", [file for file, _ in presets()])
def test_every_preset_is_a_valid_rubric(file: str) -> None:
    from engine.judge.prompting.rubric import parse_rubric

    assert parse_rubric(text_of(file)).text
    assert rubric.parts_of(text_of(file)) is not None


def another_run(engine: FakeEngine) -> str:
    """Add another run of the same project, without stored groups."""
    simulation = Simulation("01JD5MQUIETHERON0000000000", "quiet-heron")
    simulation.begin()
    return engine.add_run(simulation.made).id


def test_trial_ends_when_another_run_is_selected(
    lab: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        other = another_run(lab)
        async with judge_page(lab, qapp, tmp_path) as page:
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


def test_late_group_to_grade_is_not_opened_under_another_run(
    lab: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        other = another_run(lab)
        async with judge_page(lab, qapp, tmp_path) as page:
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


def test_late_save_of_rubric_is_not_shown_in_another_project(
    lab: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        lab.add_project("tiles")
        async with judge_page(lab, qapp, tmp_path) as page:
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
