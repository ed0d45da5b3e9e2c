"""Import trajectories: from the command to the rows on the page, over a fake engine on HTTP."""

from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QFileDialog, QLineEdit

from engine.protocol.problems import Problem
from engine.protocol.requests.runs import ImportScenarios
from studio.app import Studio
from studio.pages.home.page import HomePage
from studio.services.notifications import Question
from studio.shell import import_trajectories
from studio.shell.import_trajectories import ImportOptions
from studio.widgets.controls.buttons import Button
from tests.studio.conftest import Run, until
from tests.studio.fakes.engine import FakeEngine
from tests.studio.screenshots.pages import open_project, studio_on


async def choose(studio: Studio, button: str, path: Path) -> None:
    """Click a kind of source in the dialog, then select its path."""
    await until(lambda: studio.window.findChildren(Question))
    (question,) = studio.window.findChildren(Question)
    (choice,) = [
        b for b in question.findChildren(Button) if button in (b.text(), b.accessibleName())
    ]
    choice.click()
    await until(lambda: studio.window.findChildren(QFileDialog))
    (dialog,) = studio.window.findChildren(QFileDialog)

    dialog.findChild(QLineEdit).setText(str(path))
    dialog.done(QFileDialog.DialogCode.Accepted)


@pytest.fixture
def talk(tmp_path: Path) -> Path:
    file = tmp_path / "talk.jsonl"
    file.write_text('{"messages": []}\n')
    return file


def test_imported_file_becomes_a_run_and_is_shown(
    engine: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path, talk: Path
) -> None:
    async def job() -> None:
        Path(engine.add_project("inbox-scout").path).mkdir()
        async with studio_on(engine, qapp, tmp_path) as studio:
            assert not studio.actions["project.import"].isEnabled()
            await open_project(studio, engine, "inbox-scout")
            studio.actions.trigger("project.import")
            await choose(studio, "A file…", talk)
            await until(lambda: studio.window.page == "trajectories")
            assert [asked.source for asked in engine.imports] == [str(talk)]
            assert studio.session.run.summary is not None
            assert studio.session.run.summary.kind == "imported"
            await until(lambda: studio.window.header.chip.accessibleName().count("Imported"))
            await until(lambda: "trajectories imported" in studio.notifier.words())

    run(job())


def test_file_is_imported_as_scenarios_and_masked(
    engine: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path, talk: Path
) -> None:
    async def job() -> None:
        Path(engine.add_project("inbox-scout").path).mkdir()
        async with studio_on(engine, qapp, tmp_path) as studio:
            await open_project(studio, engine, "inbox-scout")
            studio.actions.trigger("project.import")
            await until(lambda: studio.window.findChildren(ImportOptions))
            (options,) = studio.window.findChildren(ImportOptions)
            await until(options.isVisible)
            cell = options._form._cells()[2].center().toPoint()
            QTest.mouseClick(options._form, Qt.MouseButton.LeftButton, pos=cell)
            QTest.mouseClick(options._mask, Qt.MouseButton.LeftButton)
            await choose(studio, "A file…", talk)
            await until(lambda: "3 scenarios added to validation.jsonl" in studio.notifier.words())
            assert studio.notifier.words().endswith("; 1 known ones omitted.")
            (asked,) = engine.imports
            assert isinstance(asked, ImportScenarios)
            assert (asked.split, asked.mask, asked.source) == ("validation", True, str(talk))
            await until(lambda: studio.window.page == "setup")

    run(job())


def test_imported_folder_goes_into_selected_project(
    engine: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        Path(engine.add_project("inbox-scout").path).mkdir()
        view = engine.add_project("other")
        folder = tmp_path / ".art"
        folder.mkdir()
        async with studio_on(engine, qapp, tmp_path) as studio:
            await open_project(studio, engine, "inbox-scout")
            home = studio.pages["home"]
            assert isinstance(home, HomePage)
            home.import_wanted.emit(view.path)
            home.import_wanted.emit(view.path)
            assert "Another import" in studio.notifier.words()
            await choose(studio, "An .art folder…", folder)
            await until(lambda: studio.window.page == "trajectories")
            assert studio.session.project.path == view.path

    run(job())


def test_invalid_file_is_reported_and_opens_nothing(
    engine: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path, talk: Path
) -> None:
    async def job() -> None:
        Path(engine.add_project("inbox-scout").path).mkdir()
        problem = Problem(code="attempts.wrong_line", message="This line is not a trajectory.")
        engine.refuse["/import"] = problem
        async with studio_on(engine, qapp, tmp_path) as studio:
            await open_project(studio, engine, "inbox-scout")
            page = studio.window.page
            studio.actions.trigger("project.import")
            await choose(studio, "A file…", talk)
            await until(lambda: "not a trajectory" in studio.notifier.words())
            assert studio.window.page == page
            studio.actions.trigger("project.import")
            await until(lambda: studio.window.findChildren(Question))
            studio.window.findChildren(Question)[-1].reject()
            await until(lambda: not studio.session.tasks.busy("import"))

    run(job())


def test_long_import_notifies_repeatedly_and_ends_with_window(
    engine: FakeEngine,
    run: Run,
    qapp: QApplication,
    tmp_path: Path,
    talk: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(import_trajectories, "SAY_EVERY_S", 0.05)

    async def job() -> None:
        Path(engine.add_project("inbox-scout").path).mkdir()
        async with studio_on(engine, qapp, tmp_path) as studio:
            await open_project(studio, engine, "inbox-scout")
            engine.delay_s = 2
            studio.actions.trigger("project.import")
            await choose(studio, "A file…", talk)
            await until(lambda: "Importing talk.jsonl (" in studio.notifier.words())
        engine.delay_s = 0

    run(job())
