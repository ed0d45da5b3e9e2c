"""New project from verifiers: the sheet creates a folder, waits for packages, reads the data set;
problems stand beside their field."""

from pathlib import Path
from typing import Any

from PySide6.QtCore import QPoint, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from engine.protocol.problems import Problem
from engine.protocol.requests.drafts import BeginEnvironment, ReadEnvironment
from tests.studio.conftest import Run, until
from tests.studio.fakes.engine import FakeEngine
from tests.studio.fakes.environments import AGENT, at_home
from tests.studio.screenshots.pages import studio_on

BROKEN = Problem(
    code="task.not_loaded",
    message="The task cannot be loaded: TypeError: unexpected argument 'n'.",
    hint="Check its arguments, and the packages in requirements.txt.",
)


async def open_sheet(studio: Any) -> Any:
    studio.actions.trigger("project.environment")
    sheet = studio.describing.environment
    await until(sheet.is_open)
    return sheet


def problem_of(sheet: Any, key: str) -> str:
    return str(sheet._rows[key]._note.words())


def test_environment_becomes_project(
    qapp: QApplication, run: Run, engine: FakeEngine, tmp_path: Path
) -> None:
    async def job() -> None:
        engine.environments.steps = 1
        async with studio_on(engine, qapp, tmp_path) as studio:
            notices: list[str] = []
            studio.session.notice.connect(notices.append)
            sheet = await open_sheet(studio)
            await until(lambda: "textarena" in sheet.name.choices())
            sheet.name.line.setText("sophistry-bench-sprint==0.1.6")
            assert sheet.folder.value() == "sophistry-bench-sprint"
            sheet.arguments.set_value('{"n_items": 20}')
            sheet.scenarios.set_value(40)
            sheet._main.click()
            await until(lambda: sheet._main.words() == "Read data set")
            folder = str(engine.workspace / "sophistry-bench-sprint")
            assert engine.authoring.environments == [
                BeginEnvironment(
                    folder=folder, name="sophistry-bench-sprint==0.1.6", arguments={"n_items": 20}
                )
            ]
            await until(lambda: sheet.packages.lacking)
            assert not sheet._main.isEnabled()
            engine.environments.change(AGENT, **at_home("agent"))
            sheet.packages.look()
            await until(sheet._main.isEnabled)
            engine.authoring.not_loaded = BROKEN
            sheet._main.click()
            await until(lambda: "unexpected argument" in sheet._problem.words())
            engine.authoring.not_loaded = None
            sheet.arguments.set_value('{"n_items": 4}')
            sheet._main.click()
            await until(lambda: not sheet.is_open())
            assert engine.authoring.environments[-1] == ReadEnvironment(folder=folder, scenarios=40)
            await until(lambda: studio.session.project.path == folder)
            assert notices[-1].startswith("sophistry-bench-sprint: 32 training scenarios, 8 for")

    run(job())


def test_task_of_inspect_becomes_project(
    qapp: QApplication, run: Run, engine: FakeEngine, tmp_path: Path
) -> None:
    async def job() -> None:
        async with studio_on(engine, qapp, tmp_path) as studio:
            sheet = await open_sheet(studio)
            await until(lambda: "textarena" in sheet.name.choices())
            QTest.mouseClick(sheet.library._switch, Qt.MouseButton.LeftButton, pos=right_of(sheet))
            assert sheet.library.value() == "inspect"
            assert sheet.name.choices() == []
            assert sheet.name.line.placeholderText() == "FILE.py@TASK, or PACKAGE/TASK"
            assert sheet._words.words().startswith("A task of Inspect becomes a project")
            sheet._main.click()
            assert problem_of(sheet, "name") == "Enter FILE.py@TASK, or PACKAGE/TASK."
            sheet.name.line.setText("tasks/arithmetic.py@sums")
            assert sheet.folder.value() == "sums"
            sheet._main.click()
            await until(lambda: sheet._main.words() == "Read data set")
            (request,) = engine.authoring.environments
            assert (request.library, request.name) == ("inspect", "tasks/arithmetic.py@sums")
            assert not sheet.library.isEnabled()

    run(job())


def right_of(sheet: Any) -> QPoint:
    """Point in the last segment of the switch between libraries."""
    switch = sheet.library._switch
    return QPoint(switch.width() - 20, switch.height() // 2)


def test_problems_stand_beside_their_field(
    qapp: QApplication, run: Run, engine: FakeEngine, tmp_path: Path
) -> None:
    async def job() -> None:
        async with studio_on(engine, qapp, tmp_path) as studio:
            sheet = await open_sheet(studio)
            sheet.arguments.set_value("[1]")
            sheet._main.click()
            assert problem_of(sheet, "name").startswith("Enter the name of a package")
            assert problem_of(sheet, "arguments").startswith("Write a JSON object")
            assert problem_of(sheet, "folder") == "Enter a name."
            assert engine.authoring.environments == []
            sheet.name.line.setText("missing")
            sheet.arguments.set_value("")
            sheet._main.click()
            await until(lambda: "cannot be downloaded" in problem_of(sheet, "name"))
            assert sheet._main.words() == "Create"

    run(job())
