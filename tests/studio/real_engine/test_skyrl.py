"""SkyRL in the window over a real engine, on this machine: started, trained on and stopped by
keyboard; every button clicked by mouse."""

from pathlib import Path
from typing import Any

import keyring
import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from studio.services.notifications import Question
from studio.widgets.controls.buttons import Button
from tests.engine_http.conftest import CACHE, make_project
from tests.studio.buttons.conftest import MemoryKeyring
from tests.studio.buttons.every_button import obstacle
from tests.studio.conftest import Run, until
from tests.studio.real_engine.test_clusters import press, tab_to, type_text
from tests.studio.real_engine.test_engine import click
from tests.studio.real_window import page_of, window

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]
SOON_S, READY_S, TRAINED_S = 30.0, 120.0, 240.0
Key = Qt.Key


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    ring = MemoryKeyring()
    monkeypatch.setattr(keyring, "get_keyring", lambda: ring)
    monkeypatch.setenv("XDG_CACHE_HOME", CACHE)  # SkyRL and the SDK are installed once


def test_skyrl_started_by_keyboard_trains_the_project(
    run: Run, qapp: QApplication, tmp_path: Path, tiny_model: Path, clean_home: Path
) -> None:
    project = make_project(tmp_path / "workspace" / "letters", tiny_model)
    settings = project / "project.toml"
    settings.write_text(settings.read_text().replace("rank = 4", "rank = 4\nalpha = 32"))

    async def job() -> None:
        async with window(qapp, tmp_path / "workspace") as studio:
            session = studio.session
            studio.window.activateWindow()
            session.open_project(str(project), "setup")
            await until(lambda: session.project.path == str(project), SOON_S)
            await until(lambda: not session.tasks.busy("project"), SOON_S)
            studio.actions.trigger("clusters.start")
            sheet: Any = studio.servers.start_sheet
            await until(lambda: sheet.is_open() and sheet.name.editor.hasFocus(), SOON_S)
            type_text("small")
            assert sheet.model.value() == str(tiny_model)  # that of the open project
            tab_to("Start")
            press(Key.Key_Return)
            await until(lambda: not sheet.is_open(), SOON_S)
            studio.actions.trigger("clusters.open")
            settings_page: Any = page_of(studio, "settings")
            row = settings_page.clusters.rows["small"]
            await until(lambda: row._words.words().startswith("running"), READY_S)

            studio.actions.trigger("go.setup")  # Settings belongs to no project
            await until(lambda: studio.window.page == "setup", SOON_S)
            studio.actions.trigger("engine.choose")
            menu = studio.frame.switcher.menu
            action = next(one for one in menu.actions() if one.text().startswith("small"))
            menu.setActiveAction(action)
            QTest.keyClick(menu, Key.Key_Return)
            studio.actions.trigger("run.train")
            await until(lambda: session.run.run_id, SOON_S)
            state = session.runs.state(session.run.run_id)
            await until(lambda: state.status in ("finished", "failed"), TRAINED_S)
            assert state.status == "finished", state.problem
            assert state.cluster.name == "small"

            studio.actions.trigger("clusters.open")
            await until(row._stop.isVisible, SOON_S)
            studio.window.activateWindow()
            row._stop.setFocus()
            await until(lambda: QApplication.focusWidget() is row._stop, SOON_S)
            press(Key.Key_Return)
            await until(lambda: row._words.words() == "off", SOON_S)
            assert session.clusters.view("small").server.state == "off"

    run(job())


def test_every_button_of_skyrl_has_its_effect(
    run: Run, qapp: QApplication, tmp_path: Path, tiny_model: Path, clean_home: Path
) -> None:
    project = make_project(tmp_path / "workspace" / "letters", tiny_model)

    async def press_when_free(button: Button) -> None:
        await until(lambda: not obstacle(button), SOON_S)
        click(button)

    async def job() -> None:
        async with window(qapp, tmp_path / "workspace") as studio:
            session, sheet = studio.session, studio.servers.start_sheet
            studio.window.activateWindow()
            session.open_project(str(project), "setup")
            await until(lambda: session.project.path == str(project), SOON_S)
            studio.actions.trigger("clusters.open")
            settings_page: Any = page_of(studio, "settings")
            card = settings_page.clusters
            await press_when_free(card._start)
            await until(sheet.is_open, SOON_S)
            await press_when_free(sheet._fold)
            sheet.nodes.set_value(2)
            sheet.nodes.edited.emit(2)
            await until(lambda: sheet._blocks, SOON_S)  # the commands of two nodes
            await press_when_free(sheet._add)
            await until(studio.servers.cluster_sheet.is_open, SOON_S)
            studio.servers.cluster_sheet.close_sheet()
            await press_when_free(card._start)
            await until(sheet.is_open, SOON_S)
            await press_when_free(sheet._start)
            await until(lambda: not sheet.is_open(), SOON_S)
            row = card.rows["skyrl"]

            def runs() -> bool:
                return bool(row._words.words().startswith("running"))

            await until(runs, READY_S)
            await press_when_free(row._test)
            await until(lambda: row._words.words() == "running · serves 1 model", READY_S)
            await press_when_free(row._copy)
            assert "skyrl.tinker.api" in QApplication.clipboard().text()
            await press_when_free(row._stop)
            await until(lambda: row._words.words() == "off", SOON_S)
            await press_when_free(row._start)
            await until(runs, READY_S)
            await press_when_free(row._edit)
            await until(sheet.is_open, SOON_S)
            sheet.options["sequences"].set_value(4)
            assert sheet._start.words() == "Restart"
            await press_when_free(sheet._start)
            await until(lambda: not sheet.is_open(), SOON_S)
            await until(runs, READY_S)
            state = await session.client.skyrl()
            assert state.settings is not None
            assert state.settings.sequences == 4
            await press_when_free(row._remove)
            await until(lambda: isinstance(QApplication.activeModalWidget(), Question), SOON_S)
            question: Any = QApplication.activeModalWidget()
            found = question.findChildren(Button)
            click(next(one for one in found if one.words() == "Remove"))
            await until(lambda: not card.rows, SOON_S)
            assert (await session.client.skyrl()).state == "off"

    run(job())
