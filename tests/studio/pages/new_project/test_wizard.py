"""New project wizard: drafts are written, edited, cancelled, resumed and turned into a project."""

from pathlib import Path
from typing import Any

from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QWidget

from engine.protocol.problems import Problem
from engine.protocol.requests.drafts import DRAFT_MARK, Writer
from tests.studio.conftest import Run, until
from tests.studio.fakes.drafts import LIBRARY, SYSTEM
from tests.studio.fakes.engine import FakeEngine
from tests.studio.fakes.environments import AGENT, at_home
from tests.studio.screenshots.pages import studio_on

TASK = "A customer writes a short message; the model answers it politely in one sentence."
PAID = "Paid responses are stored"
SPENT = Problem(code="authoring.budget", message="The budget is spent.", hint="Raise it.")


def fill_in_task(sheet: Any, name: str = "shop", count: int = 60) -> None:
    """Fill in step 1 like a person."""
    task = sheet.task
    for field, words in ((task.name, name), (task.description, TASK)):
        field.editor.setFocus()
        field.set_value(words)
        field.edited.emit(words)
    task.writer.model.line.setText("openai/gpt-5.4")
    task.count.set_value(count)


def press_key(widget: QWidget, which: Any, *more: Any) -> None:
    widget.setFocus()
    QTest.keyClick(widget, which, *more)


def rows_of(sheet: Any) -> list[Any]:
    return list(sheet.draft.scenarios.model.rows)


async def open_wizard(studio: Any) -> Any:
    studio.actions.trigger("project.describe")
    sheet = studio.describing.sheet
    await until(sheet.is_open)
    return sheet


def test_description_becomes_project_by_keyboard(
    qapp: QApplication, run: Run, engine: FakeEngine, tmp_path: Path
) -> None:
    async def job() -> None:
        async with studio_on(engine, qapp, tmp_path) as studio:
            sheet = await open_wizard(studio)
            fill_in_task(sheet)
            assert sheet._main.accessibleName() == "Generate, at most $1.00"
            press_key(
                sheet.task.name.editor, Qt.Key.Key_Return, Qt.KeyboardModifier.ControlModifier
            )
            await until(lambda: sheet.draft.whole and not sheet.writing)
            request = engine.authoring.asked[-1]
            assert request.folder == str(engine.workspace / "shop")
            assert (request.writer.model, request.count, request.tools) == (
                "openai/gpt-5.4",
                60,
                [],
            )
            assert sheet.draft.system.text() == SYSTEM
            assert sheet.draft.scenarios.words.words() == "48 for training, 12 for validation"
            assert (
                sheet.draft._left_out.words()
                == "Scenarios left out: 3 too similar to another · 1 not valid JSON"
            )

            table = sheet.draft.scenarios.table
            first = rows_of(sheet)[0].now.input
            table.selectRow(1)
            press_key(table, Qt.Key.Key_S)
            press_key(table, Qt.Key.Key_5)
            press_key(table, Qt.Key.Key_Space)
            changed = rows_of(sheet)[1]
            assert (changed.now.split, changed.now.difficulty) == ("validation", 5)
            assert not changed.keep
            table.selectRow(0)
            press_key(table, Qt.Key.Key_Delete)
            assert first not in [row.now.input for row in rows_of(sheet)]
            press_key(table, Qt.Key.Key_A)
            assert not sheet._main.isEnabled()
            assert "no input" in sheet._note.words()
            QTest.keyClicks(sheet.draft.scenarios.whole, "Where is my wheel?")
            assert sheet._main.isEnabled()

            press_key(table, Qt.Key.Key_Return, Qt.KeyboardModifier.ControlModifier)
            assert sheet.finish.judge.now() == request.writer
            sheet.finish.judge.model.line.setText("openai/o4-mini")
            sheet.finish.learner.line.setText("smollm2-135m-instruct")
            press_key(sheet._main, Qt.Key.Key_Return)
            await until(lambda: engine.started)
            made = engine.authoring.finished[-1]
            assert (made.judge.model, made.learner) == ("openai/o4-mini", "smollm2-135m-instruct")
            assert len(made.draft.scenarios) == 59
            assert made.draft.scenarios[-1].input == "Where is my wheel?"
            baseline = engine.started[-1]
            assert (baseline.kind, baseline.overrides) == (
                "baseline", {"train.validation_attempts": 4},
            )  # fmt: skip
            assert studio.window.page == "setup"
            assert studio.session.project.path == made.folder
            assert not sheet.is_open()

    run(job())


def test_cancelled_draft_resumes_and_keeps_edits(
    qapp: QApplication, run: Run, engine: FakeEngine, tmp_path: Path
) -> None:
    async def job() -> None:
        writer = engine.authoring
        async with studio_on(engine, qapp, tmp_path) as studio:
            sheet = await open_wizard(studio)
            fill_in_task(sheet)
            writer.delay_s = 30.0
            writer.paid[str(engine.workspace / "shop")] = 12
            sheet._press()
            await until(lambda: len(rows_of(sheet)) == 12)
            assert "at most $0.0841" in sheet.draft._progress.words()
            sheet.draft.system.setPlainText("My own words.")
            sheet.draft.scenarios.model.delete({0})
            sheet.draft.scenarios.model.set_input(0, "Mine")
            press_key(sheet._stop, Qt.Key.Key_Return)
            assert PAID in sheet.draft._progress.words()
            assert not sheet.writing
            assert sheet.isAncestorOf(studio.window.focusWidget()), "the focus stays in the wizard"

            writer.delay_s, writer.problem, writer.stop_after = 0.0, SPENT, 24
            press_key(sheet._more, Qt.Key.Key_Return)
            await until(lambda: not sheet.writing)
            assert sheet.draft._problem.words() == "The budget is spent. Raise it."
            assert sheet._main.isEnabled(), "continuing with fewer scenarios is possible"
            writer.problem = None
            press_key(sheet._more, Qt.Key.Key_Return)
            await until(lambda: sheet.draft.whole and not sheet.writing)
            assert sheet.draft.system.text() == "My own words."
            assert len(rows_of(sheet)) == 59
            assert rows_of(sheet)[0].now.input == "Mine"
            assert not sheet._more.isVisible()

            sheet._step_back()
            sheet.task.description.set_value(f"{TASK} Never a date.")
            sheet._press()
            await until(lambda: sheet.draft.whole and not sheet.writing)
            assert len(rows_of(sheet)) == 60, "another description starts another draft"

    run(job())


def test_scenario_can_be_typed_while_others_arrive(
    qapp: QApplication, run: Run, engine: FakeEngine, tmp_path: Path
) -> None:
    async def job() -> None:
        async with studio_on(engine, qapp, tmp_path) as studio:
            sheet = await open_wizard(studio)
            fill_in_task(sheet, count=24)
            engine.authoring.delay_s = 0.0
            sheet._press()
            await until(lambda: sheet.draft.whole and not sheet.writing)
            part = sheet.draft.scenarios
            first = [row.written for row in rows_of(sheet)][:12]
            part.model.begin()
            part.model.take(first)
            part._add()
            part.whole.setFocus()
            QTest.keyClicks(part.whole, "Where is ")
            resets: list[bool] = []
            part.model.modelReset.connect(lambda: resets.append(True))
            whole = [*first, *(one.model_copy(update={"input": f"{one.input}!"}) for one in first)]
            part.model.take(whole)
            assert not resets
            assert part.whole.isEnabled()
            assert part.whole.text() == "Where is "
            QTest.keyClicks(part.whole, "my wheel?")
            inputs = [row.now.input for row in rows_of(sheet)]
            assert inputs == [*(one.input for one in whole), "Where is my wheel?"]
            assert part.table.currentIndex().row() == 24

    run(job())


def test_closing_wizard_cancels_writing_and_keeps_draft(
    qapp: QApplication, run: Run, engine: FakeEngine, tmp_path: Path
) -> None:
    async def job() -> None:
        writer = engine.authoring
        async with studio_on(engine, qapp, tmp_path) as studio:
            sheet = await open_wizard(studio)
            fill_in_task(sheet)
            writer.delay_s = 30.0
            writer.paid[str(engine.workspace / "shop")] = 12
            sheet._press()
            await until(lambda: len(rows_of(sheet)) == 12)
            press_key(sheet, Qt.Key.Key_Escape)
            assert not sheet.writing
            assert PAID in studio.notifier.words()
            sheet = await open_wizard(studio)
            assert sheet.draft.isVisible()
            assert len(rows_of(sheet)) == 12

            sheet._forget()
            sheet.close_sheet()
            await until(lambda: any(v.toml == DRAFT_MARK for v in studio.session.projects))
            home = studio.pages["home"]
            studio.window.show_page("home")
            home._refresh()
            home._open(0)
            assert sheet.is_open()
            assert (sheet.task.name.value(), sheet.task.description.value()) == ("shop", TASK)
            assert not sheet.task.name.isEnabled()

    run(job())


def test_problems_are_shown_at_their_fields(
    qapp: QApplication, run: Run, engine: FakeEngine, tmp_path: Path
) -> None:
    async def job() -> None:
        engine.add_project("taken")
        async with studio_on(engine, qapp, tmp_path) as studio:
            sheet = await open_wizard(studio)
            rows = sheet.task._rows
            sheet._press()
            assert rows["name"].problem() == "Enter a name."
            assert "expected outputs" in rows["description"].problem()
            assert (
                sheet.task.writer._rows["model"].problem()
                == "Select the model that drafts the project."
            )
            fill_in_task(sheet, "taken")
            sheet.task.writer.model.line.setText("gpt")
            sheet._press()
            assert rows["name"].problem() == "A project named taken already exists."
            assert "PROVIDER/MODEL" in sheet.task.writer._rows["model"].problem()
            assert not engine.authoring.asked

            fill_in_task(sheet)
            engine.refuse["/drafts"] = Problem(
                code="judge.price_unknown", message="The price of it is not known."
            )
            sheet._press()
            await until(lambda: sheet.task._problem.isVisible())
            assert sheet.task.isVisible(), "nothing is written: the description can be corrected"
            assert "prices above" in sheet.task._problem.words()
            assert sheet.task.writer._rows["price_in"].problem()
            sheet.task.writer.price_in._line.setText("1.5")
            sheet._press()
            assert sheet.task.writer._rows["price_out"].problem() == "Enter both prices or neither"
            sheet.task.writer.price_out._line.setText("6")
            engine.refuse.clear()
            sheet._press()
            await until(lambda: sheet.draft.whole and not sheet.writing)
            assert engine.authoring.asked[-1].writer == Writer(
                model="openai/gpt-5.4", price_prompt=1.5, price_completion=6
            )
            engine.refuse["/drafts"] = Problem(code="authoring.too_few", message="Too few.")
            sheet._press()
            sheet._press()
            await until(lambda: sheet.finish._problem.isVisible())
            assert sheet.is_open()
            assert not sheet._main.is_busy()

    run(job())


def test_scenarios_are_written_for_selected_tools(
    qapp: QApplication, run: Run, engine: FakeEngine, tmp_path: Path
) -> None:
    async def job() -> None:
        async with studio_on(engine, qapp, tmp_path) as studio:
            sheet = await open_wizard(studio)
            fill_in_task(sheet, "librarian")
            tools = sheet.task.tools
            press_key(tools.wanted, Qt.Key.Key_Space)
            sheet._press()
            assert sheet.task._problem.words() == "Add a server, or select an mcp.json."
            tools.bring("bad.json")
            await until(lambda: tools._problem.isVisible())
            assert "no MCP servers" in tools._problem.words()
            tools.bring("servers.json")
            await until(lambda: tools._packages.known)
            assert not sheet.task.name.isEnabled(), "its folder exists"
            sheet._press()
            assert "packages" in sheet.task._problem.words()
            assert engine.authoring.looks == 0, "no server is contacted without the packages"

            engine.environments.change(AGENT, **at_home("agent"))
            tools._packages.look()
            await until(lambda: len(tools.servers.offered) == len(LIBRARY))
            row = tools.servers._rows["library"]
            await until(lambda: not row.visibleRegion().isEmpty())
            press_key(tools.servers._rows["library"].tools["lend_book"], Qt.Key.Key_Space)
            await until(lambda: len(tools.servers.offered) == 3)
            sheet._press()
            await until(lambda: sheet.draft.whole and not sheet.writing)
            tool_names = [tool.name for tool in engine.authoring.asked[-1].tools]
            assert tool_names == ["find_book", "give_back", "opening_hours"]
            sheet._press()
            sheet.finish.measure.setChecked(False)
            sheet._press()
            await until(lambda: engine.authoring.finished)
            assert engine.authoring.finished[-1].tools
            await until(lambda: studio.window.page == "setup")
            assert not engine.started

    run(job())
