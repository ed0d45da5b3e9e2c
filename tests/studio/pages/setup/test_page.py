"""What is entered on Setup is written where it was entered, and stays while it is being typed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from engine.protocol.config.project import ProjectConfig
from studio.pages.setup.tabs.toml import NOT_SAVED, OUTDATED
from tests.studio.conftest import Run, until
from tests.studio.fakes.engine import FakeEngine
from tests.studio.screenshots.pages import open_project, studio_on

LR, SFT_LR = "train.lr", "sft.lr"


@asynccontextmanager
async def setting_up(
    engine: FakeEngine, app: QApplication, folder: Path
) -> AsyncIterator[tuple[Any, Any]]:
    """Two projects, the first of them on its Setup page."""
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
    config = engine.homes.projects[path_of(engine, name)].config
    assert config is not None
    return config


async def turn_to(studio: Any, engine: FakeEngine, name: str) -> None:
    """Over Home, as a person does."""
    studio.window.show_page("home")
    await open_project(studio, engine, name)
    studio.window.show_page("setup")
    await until(lambda: studio.pages["setup"]._edits.path == path_of(engine, name))


def begin(row: Any, keys: str) -> None:
    editor = row.field.editor
    editor.setFocus()
    assert editor.hasFocus()
    editor.selectAll()
    QTest.keyClicks(editor, keys)


def test_a_number_is_written_as_it_was_typed_whatever_is_answered_meanwhile(
    qapp: QApplication, run: Run, engine: FakeEngine, tmp_path: Path
) -> None:
    async def work() -> None:
        async with setting_up(engine, qapp, tmp_path) as (_, setup):
            form = setup._form
            form._advanced.unfold(True)
            row = form._advanced.rows[LR]
            begin(row, "2e-")
            for size in (4, 8):
                form.edited.emit("train.group_size", size)
                await until(lambda: form._advanced.rows["train.group_size"].field.value() == size)  # noqa: B023
                assert row.field.text() == "2e-"
            QTest.keyClicks(row.field.editor, "6")
            QTest.keyClick(row.field.editor, Qt.Key.Key_Return)
            await until(lambda: config_of(engine, "first").train.lr == 2e-6)
            written = [values for _, values in engine.homes.edits if LR in values]
            assert written == [{LR: 2e-6}]

    run(work())


def test_train_begins_with_what_is_just_being_typed(
    qapp: QApplication, run: Run, engine: FakeEngine, tmp_path: Path
) -> None:
    async def work() -> None:
        async with setting_up(engine, qapp, tmp_path) as (studio, setup):
            form = setup._form
            form._advanced.unfold(True)
            begin(form._advanced.rows[LR], "3e-6")
            engine.held.add("PUT /project")
            studio.actions.trigger("run.train")
            await until(lambda: studio.session._writing)
            await asyncio.sleep(0.05)
            assert not engine.started
            engine.held.clear()
            await until(lambda: engine.started)
            assert config_of(engine, "first").train.lr == 3e-6

    run(work())


def test_a_path_is_written_when_it_is_finished(
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
            assert line.cursorPosition() == 3, "an answer does not move the cursor"
            QTest.keyClicks(line, "own_")
            form._advanced.rows[LR].field.editor.setFocus()
            form._advanced._fold.setFocus()
            await until(lambda: config_of(engine, "first").agent.file == "my_own_agent.py")

    run(work())


def test_a_refused_setting_stays_where_it_was_entered(
    qapp: QApplication, run: Run, engine: FakeEngine, tmp_path: Path
) -> None:
    async def work() -> None:
        async with setting_up(engine, qapp, tmp_path) as (_, setup):
            form, tab = setup._form, setup._demonstrations
            form._advanced.unfold(True)
            own = form._advanced.rows[LR]
            begin(own, "0")
            form._advanced._fold.setFocus()
            await until(own.problem)
            said = own.problem()

            setup.show_demonstrations()
            row = tab._rows[SFT_LR]
            begin(row, "0")
            tab._again.setFocus()
            await until(row.problem)
            assert form._advanced.rows[SFT_LR].problem() == "", "nothing was entered there"

            form.edited.emit("train.group_size", 4)
            await until(lambda: form._advanced.rows["train.group_size"].field.value() == 4)
            assert (own.field.text(), own.problem()) == ("0", said)
            assert row.field.text() == "0"
            assert row.problem()

            begin(row, "0.001")
            tab._again.setFocus()
            await until(lambda: config_of(engine, "first").sft.lr == 0.001)
            await until(lambda: not row.problem())
            await until(lambda: form._advanced.rows[SFT_LR].field.value() == 0.001)

    run(work())


def test_what_is_typed_is_written_into_the_project_it_was_typed_for(
    qapp: QApplication, run: Run, engine: FakeEngine, tmp_path: Path
) -> None:
    async def work() -> None:
        async with setting_up(engine, qapp, tmp_path) as (studio, setup):
            setup._form._advanced.unfold(True)
            row = setup._form._advanced.rows[LR]
            begin(row, "0.5")
            engine.held.add("PUT /project")
            second = engine.homes.projects[path_of(engine, "second")]
            studio.session.show_project(second)  # it was long in coming
            assert row.field.value() == config_of(engine, "second").train.lr
            await until(lambda: engine.homes.edits)
            assert engine.homes.edits == [(path_of(engine, "first"), {LR: 0.5})]
            engine.held.clear()
            await until(lambda: not any("edit" in name for name in setup.tasks._jobs))
            assert studio.session.project.name == "second", "an answer opens nothing"
            assert row.field.value() == config_of(engine, "second").train.lr

    run(work())


def test_unsaved_text_stays_with_its_project(
    qapp: QApplication, run: Run, engine: FakeEngine, tmp_path: Path
) -> None:
    async def work() -> None:
        async with setting_up(engine, qapp, tmp_path) as (studio, setup):
            tab, homes = setup._toml, engine.homes
            setup._choose(1)
            of_second = homes.projects[path_of(engine, "second")].toml
            mine = f"{tab.editor.toPlainText()}\n# mine\n"
            tab.editor.setPlainText(mine)
            assert tab._words.words() == NOT_SAVED

            await turn_to(studio, engine, "second")
            assert tab.editor.toPlainText() == of_second
            setup.save()
            assert homes.projects[path_of(engine, "second")].toml == of_second

            await turn_to(studio, engine, "first")
            assert tab.editor.toPlainText() == mine
            assert tab._save.isEnabled()
            setup.save()
            await until(lambda: homes.projects[path_of(engine, "first")].toml == mine)
            await until(lambda: not tab.dirty)

    run(work())


def test_a_save_that_is_answered_late_opens_nothing(
    qapp: QApplication, run: Run, engine: FakeEngine, tmp_path: Path
) -> None:
    async def work() -> None:
        async with setting_up(engine, qapp, tmp_path) as (studio, setup):
            tab, mine = setup._toml, "# mine\n"
            setup._choose(1)
            tab.editor.setPlainText(mine)
            engine.held.add("PUT /project")
            setup.save()
            await until(lambda: engine.homes.projects[path_of(engine, "first")].toml == mine)
            await turn_to(studio, engine, "second")
            engine.held.clear()
            await until(lambda: not any("save" in name for name in setup.tasks._jobs))
            assert studio.session.project.name == "second"
            assert not tab._drafts, "it is saved"

    run(work())


def test_a_file_that_changed_meanwhile_is_told_and_can_be_taken(
    qapp: QApplication, run: Run, engine: FakeEngine, tmp_path: Path
) -> None:
    async def work() -> None:
        async with setting_up(engine, qapp, tmp_path) as (studio, setup):
            tab = setup._toml
            setup._choose(1)
            tab.editor.setPlainText("# mine\n")
            path = path_of(engine, "first")
            view = engine.homes.projects[path].model_copy(update={"toml": "# theirs\n"})
            engine.homes.projects[path] = view
            studio.session.show_project(view)
            assert tab.editor.toPlainText() == "# mine\n"
            assert tab._words.words() == OUTDATED
            tab._discard.click()
            assert tab.editor.toPlainText() == "# theirs\n"
            assert not tab.dirty

    run(work())
