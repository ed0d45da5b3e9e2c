"""Setup page: entries are written to their project, and are kept while being typed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from engine.protocol.config.project import ModelConfig, ProjectConfig
from engine.protocol.records.chat_format import ChatFormatFacts
from studio.pages.setup.tabs.toml import NOT_SAVED, OUTDATED
from tests.studio.conftest import Run, until
from tests.studio.fakes.engine import FakeEngine
from tests.studio.screenshots.pages import open_project, studio_on

LR, SFT_LR = "train.lr", "sft.lr"


@asynccontextmanager
async def setting_up(
    engine: FakeEngine, app: QApplication, folder: Path
) -> AsyncIterator[tuple[Any, Any]]:
    """Open the studio with two projects, the first of them on its Setup page."""
    engine.add_project("first")
    engine.add_project("second")
    async with studio_on(engine, app, folder) as studio:
        await open_project(studio, engine, "first")
        studio.window.show_page("setup")
        studio.window.activateWindow()
        await until(studio.window.isActiveWindow)
        yield studio, studio.pages["setup"]


def path_of(engine: FakeEngine, name: str) -> str:
    return str(engine.workspace / name)


def config_of(engine: FakeEngine, name: str) -> ProjectConfig:
    config = engine.project_store.projects[path_of(engine, name)].config
    assert config is not None
    return config


async def open_project_setup(studio: Any, engine: FakeEngine, name: str) -> None:
    """Open a project's Setup page by way of Home."""
    studio.window.show_page("home")
    await open_project(studio, engine, name)
    studio.window.show_page("setup")
    await until(lambda: studio.pages["setup"]._edits.path == path_of(engine, name))


def start_typing(row: Any, keys: str) -> None:
    editor = row.field.editor
    editor.setFocus()
    assert editor.hasFocus()
    editor.selectAll()
    QTest.keyClicks(editor, keys)


def test_number_is_written_once_as_typed(
    qapp: QApplication, run: Run, engine: FakeEngine, tmp_path: Path
) -> None:
    async def work() -> None:
        async with setting_up(engine, qapp, tmp_path) as (_, setup):
            form = setup._form
            form._advanced.unfold(True)
            row = form._advanced.rows[LR]
            start_typing(row, "2e-")
            for size in (4, 8):
                form.edited.emit("train.group_size", size)
                await until(lambda: form._advanced.rows["train.group_size"].field.value() == size)  # noqa: B023
                assert row.field.text() == "2e-"
            QTest.keyClicks(row.field.editor, "6")
            QTest.keyClick(row.field.editor, Qt.Key.Key_Return)
            await until(lambda: config_of(engine, "first").train.lr == 2e-6)
            written = [values for _, values in engine.project_store.edits if LR in values]
            assert written == [{LR: 2e-6}]

    run(work())


def test_train_waits_for_pending_entry(
    qapp: QApplication, run: Run, engine: FakeEngine, tmp_path: Path
) -> None:
    async def work() -> None:
        async with setting_up(engine, qapp, tmp_path) as (studio, setup):
            form = setup._form
            form._advanced.unfold(True)
            start_typing(form._advanced.rows[LR], "3e-6")
            engine.held.add("PUT /project")
            studio.actions.trigger("run.train")
            await until(lambda: studio.session._writing)
            await asyncio.sleep(0.05)
            assert not engine.started
            engine.held.clear()
            await until(lambda: engine.started)
            assert config_of(engine, "first").train.lr == 3e-6

    run(work())


def test_path_is_written_on_focus_loss(
    qapp: QApplication, run: Run, engine: FakeEngine, tmp_path: Path
) -> None:
    async def work() -> None:
        async with setting_up(engine, qapp, tmp_path) as (_, setup):
            form = setup._form
            form._advanced.unfold(True)
            line = form._agent.editor
            line.setFocus()
            line.setCursorPosition(0)
            QTest.keyClicks(line, "my_")
            form.edited.emit("train.group_size", 4)
            await until(lambda: form._advanced.rows["train.group_size"].field.value() == 4)
            assert line.cursorPosition() == 3, "a response does not move the cursor"
            QTest.keyClicks(line, "own_")
            form._advanced.rows[LR].field.editor.setFocus()
            form._advanced._fold.setFocus()
            await until(lambda: config_of(engine, "first").agent.file == "my_own_agent.py")

    run(work())


def test_rejected_setting_stays_at_its_field(
    qapp: QApplication, run: Run, engine: FakeEngine, tmp_path: Path
) -> None:
    async def work() -> None:
        async with setting_up(engine, qapp, tmp_path) as (_, setup):
            form, tab = setup._form, setup._demonstrations
            form._advanced.unfold(True)
            own = form._advanced.rows[LR]
            start_typing(own, "0")
            form._advanced._fold.setFocus()
            await until(own.problem)
            message = own.problem()

            setup.show_demonstrations()
            row = tab._rows[SFT_LR]
            start_typing(row, "0")
            tab._again.setFocus()
            await until(row.problem)
            assert form._advanced.rows[SFT_LR].problem() == "", "nothing was entered in this field"

            form.edited.emit("train.group_size", 4)
            await until(lambda: form._advanced.rows["train.group_size"].field.value() == 4)
            assert (own.field.text(), own.problem()) == ("0", message)
            assert row.field.text() == "0"
            assert row.problem()

            start_typing(row, "0.001")
            tab._again.setFocus()
            await until(lambda: config_of(engine, "first").sft.lr == 0.001)
            await until(lambda: not row.problem())
            await until(lambda: form._advanced.rows[SFT_LR].field.value() == 0.001)

    run(work())


def test_pending_entry_is_written_to_its_own_project(
    qapp: QApplication, run: Run, engine: FakeEngine, tmp_path: Path
) -> None:
    async def work() -> None:
        async with setting_up(engine, qapp, tmp_path) as (studio, setup):
            setup._form._advanced.unfold(True)
            row = setup._form._advanced.rows[LR]
            start_typing(row, "0.5")
            engine.held.add("PUT /project")
            second = engine.project_store.projects[path_of(engine, "second")]
            studio.session.show_project(second)  # the project took long to open
            assert row.field.value() == config_of(engine, "second").train.lr
            await until(lambda: engine.project_store.edits)
            assert engine.project_store.edits == [(path_of(engine, "first"), {LR: 0.5})]
            engine.held.clear()
            await until(lambda: not any("edit" in name for name in setup.tasks._jobs))
            assert studio.session.project.name == "second", "a late response opens no project"
            assert row.field.value() == config_of(engine, "second").train.lr

    run(work())


def test_unsaved_text_stays_with_its_project(
    qapp: QApplication, run: Run, engine: FakeEngine, tmp_path: Path
) -> None:
    async def work() -> None:
        async with setting_up(engine, qapp, tmp_path) as (studio, setup):
            tab, store = setup._toml, engine.project_store
            setup._choose(1)
            of_second = store.projects[path_of(engine, "second")].toml
            mine = f"{tab.editor.toPlainText()}\n# mine\n"
            tab.editor.setPlainText(mine)
            assert tab._words.words() == NOT_SAVED

            await open_project_setup(studio, engine, "second")
            assert tab.editor.toPlainText() == of_second
            setup.save()
            assert store.projects[path_of(engine, "second")].toml == of_second

            await open_project_setup(studio, engine, "first")
            assert tab.editor.toPlainText() == mine
            assert tab._save.isEnabled()
            setup.save()
            await until(lambda: store.projects[path_of(engine, "first")].toml == mine)
            await until(lambda: not tab.dirty)

    run(work())


def test_late_save_response_opens_no_project(
    qapp: QApplication, run: Run, engine: FakeEngine, tmp_path: Path
) -> None:
    async def work() -> None:
        async with setting_up(engine, qapp, tmp_path) as (studio, setup):
            tab, mine = setup._toml, "# mine\n"
            setup._choose(1)
            tab.editor.setPlainText(mine)
            engine.held.add("PUT /project")
            setup.save()
            await until(
                lambda: engine.project_store.projects[path_of(engine, "first")].toml == mine
            )
            await open_project_setup(studio, engine, "second")
            engine.held.clear()
            await until(lambda: not any("save" in name for name in setup.tasks._jobs))
            assert studio.session.project.name == "second"
            assert not tab._drafts, "the draft was saved"

    run(work())


def test_externally_changed_file_is_reported_and_can_be_loaded(
    qapp: QApplication, run: Run, engine: FakeEngine, tmp_path: Path
) -> None:
    async def work() -> None:
        async with setting_up(engine, qapp, tmp_path) as (studio, setup):
            tab = setup._toml
            setup._choose(1)
            tab.editor.setPlainText("# mine\n")
            path = path_of(engine, "first")
            view = engine.project_store.projects[path].model_copy(update={"toml": "# theirs\n"})
            engine.project_store.projects[path] = view
            studio.session.show_project(view)
            assert tab.editor.toPlainText() == "# mine\n"
            assert tab._words.words() == OUTDATED
            tab._discard.click()
            assert tab.editor.toPlainText() == "# theirs\n"
            assert not tab.dirty

    run(work())


def test_chat_format_is_shown_at_the_model_and_in_the_preflight(
    qapp: QApplication, run: Run, engine: FakeEngine, tmp_path: Path
) -> None:
    async def work() -> None:
        async with setting_up(engine, qapp, tmp_path) as (_, setup):
            words = "Qwen3 tool calls; reasoning kept until the next user message."
            await until(lambda: words in setup._form._first._note.words())
            note, sandbox = setup._preflight._model_checks
            assert note.accessibleName() == f"Chat format: {words} , good".replace(" ,", ",")
            assert "the agent runs with your rights" in sandbox.accessibleName()

            engine.project_store.chat_format = ChatFormatFacts()
            setup._ask_forecast()
            await until(lambda: "No tool calls" in setup._form._first._note.words())
            engine.project_store.chat_format = None
            setup._ask_forecast()
            await until(lambda: len(setup._preflight._model_checks) == 1)
            assert "Chat format" not in setup._form._first._note.words()

    run(work())


def test_settings_of_the_chat_format_are_edited_in_the_form(
    qapp: QApplication, run: Run, engine: FakeEngine, tmp_path: Path
) -> None:
    async def work() -> None:
        async with setting_up(engine, qapp, tmp_path) as (_, setup):
            setup._form._advanced.unfold(True)
            rows = setup._form._advanced.rows
            for name in (
                "thinking", "thinking_budget", "keep_reasoning", "tool_syntax",
                "template_variables",
            ):  # fmt: skip
                help = rows[f"model.{name}"].field.editor.accessibleDescription()
                assert (ModelConfig.model_fields[name].description or "?") in help

            row = rows["model.thinking_budget"]
            for text, problem in (("many", "Not a whole number"), ("0", "At least 1")):
                start_typing(row, text)
                QTest.keyClick(row.field.editor, Qt.Key.Key_Return)
                assert row.problem() == problem
            start_typing(row, "64")
            QTest.keyClick(row.field.editor, Qt.Key.Key_Return)
            await until(lambda: config_of(engine, "first").model.thinking_budget == 64)
            assert row.field.editor.text() == "64"
            start_typing(row, "")
            QTest.keyClick(row.field.editor, Qt.Key.Key_Delete)
            QTest.keyClick(row.field.editor, Qt.Key.Key_Return)
            await until(lambda: config_of(engine, "first").model.thinking_budget is None)

            row = rows["model.template_variables"]
            start_typing(row, "effort = high")
            QTest.keyClick(row.field.editor, Qt.Key.Key_Return)
            assert "texts in quotes" in row.problem()
            start_typing(row, 'effort = "high", days = 3')
            QTest.keyClick(row.field.editor, Qt.Key.Key_Return)
            values = {"effort": "high", "days": 3}
            await until(lambda: config_of(engine, "first").model.template_variables == values)
            assert row.field.editor.text() == 'effort = "high", days = 3'
            start_typing(row, "")
            QTest.keyClick(row.field.editor, Qt.Key.Key_Delete)
            QTest.keyClick(row.field.editor, Qt.Key.Key_Return)
            await until(lambda: config_of(engine, "first").model.template_variables == {})

            tools = rows["model.tool_syntax"].field
            tools.set_value("hermes")
            tools.edited.emit(tools.value())
            await until(lambda: config_of(engine, "first").model.tool_syntax == "hermes")

    run(work())
