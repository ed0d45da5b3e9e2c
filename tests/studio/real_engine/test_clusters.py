"""Cluster in the window over a real engine and a small server with Tinker's API: added, tested,
chosen and trained on, by keyboard alone; its key is written nowhere."""

from pathlib import Path
from typing import Any

import keyring
import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from studio.widgets.controls.buttons import Button
from studio.widgets.text.text import Text
from tests.engine_http.conftest import CACHE, make_project
from tests.studio.buttons.conftest import MemoryKeyring
from tests.studio.conftest import Run, until
from tests.studio.real_window import page_of, window
from tests.support.tinker_server import tinker_server

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
KEY = "tml-canary-0b5e77"
SOON_S, INSTALLED_S, TRAINED_S = 30.0, 120.0, 120.0
Key = Qt.Key


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    ring = MemoryKeyring()
    monkeypatch.setattr(keyring, "get_keyring", lambda: ring)
    monkeypatch.setenv("XDG_CACHE_HOME", CACHE)  # the SDK is installed once
    monkeypatch.delenv("TINKER_API_KEY", raising=False)


@pytest.fixture(autouse=True)
def no_stray_threads() -> None:
    """Disable the thread check: the server has a thread for every open connection."""


def press(key: Key) -> None:
    QTest.keyClick(QApplication.focusWidget(), key)


def type_text(words: str) -> None:
    QTest.keyClicks(QApplication.focusWidget(), words)


def tab_to(words: str) -> None:
    for _ in range(30):
        focused = QApplication.focusWidget()
        if isinstance(focused, Button) and focused.words() == words:
            return
        press(Key.Key_Tab)
    raise AssertionError(f"no Tab stop {words!r}")


def test_project_trains_on_a_cluster_added_by_keyboard(
    run: Run, qapp: QApplication, tmp_path: Path, tiny_model: Path, clean_home: Path
) -> None:
    project = make_project(tmp_path / "workspace" / "letters", tiny_model)

    async def job(address: str) -> None:
        async with window(qapp, tmp_path / "workspace") as studio:
            session = studio.session
            studio.window.activateWindow()
            studio.actions.trigger("clusters.add")
            sheet: Any = studio.servers.cluster_sheet
            await until(lambda: sheet.name.editor.hasFocus())
            for words in ("small", address):
                type_text(words)
                press(Key.Key_Tab)
            press(Key.Key_Down)  # Tinker 0.24
            press(Key.Key_Tab)
            type_text("tml-wrong")
            title, words = sheet._result._title, sheet._result._words
            tab_to("Test connection")
            press(Key.Key_Return)
            await until(lambda: title.words() == "Connection failed", INSTALLED_S)
            assert "The cluster rejected the API key." in words.words()
            sheet.key.editor.setFocus()
            sheet.key.editor.selectAll()
            type_text(KEY)
            tab_to("Test connection")
            press(Key.Key_Return)
            await until(lambda: title.words() == "Connected: 1 model", SOON_S)
            assert sheet._result._models.words() == "tiny · 512 tokens"
            assert "SDK tinker 0.24.1" in words.words()
            tab_to("Save")
            press(Key.Key_Return)
            await until(lambda: not sheet.is_open(), SOON_S)
            [view] = session.clusters.all
            assert (view.has_key, view.report is not None) == (True, True)

            session.open_project(str(project), "setup")
            await until(lambda: session.project.path == str(project), SOON_S)
            await until(lambda: not session.tasks.busy("project"), SOON_S)
            studio.actions.trigger("engine.choose")
            menu = studio.frame.switcher.menu
            action = next(one for one in menu.actions() if one.text().startswith("small"))
            menu.setActiveAction(action)
            QTest.keyClick(menu, Key.Key_Return)
            setup = page_of(studio, "setup")
            await until(lambda: "samples and trains at 127.0.0.1" in checks_of(setup), SOON_S)
            studio.actions.trigger("run.train")
            await until(lambda: session.run.run_id, SOON_S)
            state = session.runs.state(session.run.run_id)
            await until(lambda: state.status in ("finished", "failed"), TRAINED_S)
            assert state.status == "finished", state.problem
            assert state.spec.config.backend.cluster == "small"
            assert state.cluster.name == "small"
            studio.actions.trigger("go.setup")
            await until(
                lambda: f"Measured in {session.run.summary.name}" in checks_of(setup), SOON_S
            )

    with tinker_server(key=KEY) as server:
        run(job(server.address))
        assert set(server.keys) == {"tml-wrong", KEY}
        assert server.telemetry == 0
        assert server.models == {}, "the adapter is unloaded at the end"
    written = [file for place in (tmp_path, clean_home) for file in place.rglob("*")]
    leaking = [file for file in written if file.is_file() and KEY.encode() in file.read_bytes()]
    assert leaking == []


def checks_of(setup: Any) -> str:
    """Text of the checks of model, sandbox and cluster in the preflight."""
    notes = setup._preflight._model_checks
    return "\n".join(text.words() for note in notes for text in note.findChildren(Text))
