"""Screenshots of the New project wizard and of MCP servers in Setup.

`python -m tests.studio.screenshots.new_project FOLDER`
"""

from pathlib import Path
from typing import Any

from PySide6.QtWidgets import QApplication

from engine.protocol.problems import Problem
from tests.studio.fakes.drafts import FakeAuthoring
from tests.studio.fakes.engine import FakeEngine
from tests.studio.fakes.environments import AGENT, at_home
from tests.studio.pages.new_project.test_wizard import PAID, fill_in_task
from tests.studio.pages.tools.test_packages import FILE, setup_of
from tests.studio.screenshots.pages import run_command, settle, studio_on, take, wait_for

LONG = (
    "A customer of a bicycle shop writes a short message, in any language. The model answers in at "
    "most three sentences, says what to do next, and never promises a date. "
) * 6
SPENT = Problem(
    code="authoring.budget",
    message="The next question could cost $0.0841, and $0.0210 of $1.00 are left.",
    hint="Raise the budget and write on; what was paid for is kept.",
)


async def shoot(app: QApplication, folder: Path) -> None:
    workspace = folder / "workspace"
    workspace.mkdir(parents=True, exist_ok=True)
    engine = FakeEngine(workspace).start()
    try:
        async with studio_on(engine, app, folder) as studio:
            await settle()
            await take(studio, folder, "describe-first-start")
            await _wizard(studio, engine, folder)
            await _environment(studio, engine, folder)
            await _tools(studio, engine, folder)
            await _setup(studio, engine, folder)
    finally:
        engine.stop()


async def _wizard(studio: Any, engine: FakeEngine, folder: Path) -> None:
    studio.actions.trigger("project.describe")
    sheet, writer = studio.describing.sheet, engine.authoring
    await settle()
    await take(studio, folder, "describe-empty")
    sheet._press()
    await settle(0.2)
    await take(studio, folder, "describe-wrong")
    fill_in_task(sheet)
    sheet.task.description.set_value(LONG)
    sheet.task.writer.unfold(True)
    await take(studio, folder, "describe-long")
    writer.delay_s = 30.0
    writer.paid[str(engine.workspace / "shop")] = 24
    sheet._press()
    await wait_for(lambda: len(sheet.draft.scenarios.model.rows) >= 24)
    sheet.draft.scenarios.table.selectRow(3)
    await settle(0.3)
    await take(studio, folder, "describe-writing")
    sheet._halt()
    await settle(0.2)
    await take(studio, folder, "describe-stopped")
    writer.delay_s, writer.problem, writer.stop_after = 0.0, SPENT, 36
    sheet._write()
    await wait_for(lambda: not sheet.writing)
    await settle(0.2)
    await take(studio, folder, "describe-spent")
    writer.problem = None
    sheet._write()
    await wait_for(lambda: sheet.draft.whole and not sheet.writing)
    sheet._press()
    await settle(0.2)
    await take(studio, folder, "describe-finish")
    sheet._begin_anew()
    sheet.close_sheet()
    await settle()


async def _environment(studio: Any, engine: FakeEngine, folder: Path) -> None:
    studio.actions.trigger("project.environment")
    sheet = studio.describing.environment
    await settle(0.6)
    await take(studio, folder, "environment-empty")
    sheet.name.line.setText("missing")
    sheet._main.click()
    await settle(0.6)
    await take(studio, folder, "environment-wrong")
    sheet.name.line.setText("sophistry-bench-sprint==0.1.6")
    sheet._main.click()
    await settle(0.6)
    await take(studio, folder, "environment-packages")
    sheet._forget()
    sheet.close_sheet()
    await settle()


async def _tools(studio: Any, engine: FakeEngine, folder: Path) -> None:
    writer: FakeAuthoring = engine.authoring
    studio.actions.trigger("project.describe")
    sheet = studio.describing.sheet
    fill_in_task(sheet, "librarian")
    sheet.task.tools.wanted.click()
    await settle(0.3)
    await take(studio, folder, "describe-tools-none")
    sheet.task.tools.bring("servers.json")
    await settle(0.6)
    await take(studio, folder, "describe-tools-packages")
    engine.environments.change(AGENT, bytes=84_000_000, **at_home("agent"))
    sheet.task.tools._packages.look()
    await wait_for(lambda: bool(sheet.task.tools.servers.offered))
    await settle(0.3)
    await take(studio, folder, "describe-tools")
    sheet._begin_anew()
    sheet.close_sheet()
    await settle()
    assert writer.begun, PAID


async def _setup(studio: Any, engine: FakeEngine, folder: Path) -> None:
    path = str(engine.workspace / "inbox-scout")
    page = await setup_of(studio, engine, FILE)
    await settle(0.6)
    await take(studio, folder, "servers-none")
    page._tools.servers.add()
    await settle(0.6)
    page._tools.servers.sheet._add.click()
    await take(studio, folder, "servers-add")
    page._tools.servers.sheet.close_sheet()
    await settle(0.6)
    for name in ("library", "gone"):
        engine.authoring.add_server(path, name)
    page._tools.look()
    await settle(0.6)
    await take(studio, folder, "servers-not-looked")
    page._tools.servers.look()
    await settle(0.6)
    page._tools.servers._choose("library", "lend_book", False)
    await settle(0.4)
    await take(studio, folder, "servers-looked")


if __name__ == "__main__":
    run_command(shoot)
