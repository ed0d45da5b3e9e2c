"""Clusters in the window: added, tested, chosen, trained on and removed, by keyboard alone."""

from pathlib import Path
from typing import Any

import keyring
import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QWidget

from engine.protocol.problems import Problem
from engine.protocol.requests.clusters import ClusterSpec
from studio.app import Studio
from studio.services import api_keys
from studio.services.key_lending import cluster_key, cluster_slot, slot_content
from studio.services.notifications import Question
from studio.widgets.controls.buttons import Button
from tests.studio.buttons.conftest import MemoryKeyring
from tests.studio.conftest import Run, until
from tests.studio.fakes.clusters import HOSTED, TUNNEL
from tests.studio.fakes.engine import FakeEngine
from tests.studio.pages.runs.test_page import runs_page
from tests.studio.screenshots.pages import open_project, studio_on
from tests.studio.screenshots.runs import add_runs

KEY = "tml-canary-4711"


@pytest.fixture
def ring(monkeypatch: pytest.MonkeyPatch) -> MemoryKeyring:
    ring = MemoryKeyring()
    monkeypatch.setattr(keyring, "get_keyring", lambda: ring)
    return ring


@pytest.fixture(autouse=True)
def no_key_in_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TINKER_API_KEY", raising=False)


def focused() -> QWidget:
    widget = QApplication.focusWidget()
    assert widget is not None
    return widget


def press(key: Qt.Key) -> None:
    QTest.keyClick(focused(), key)


def type_text(words: str) -> None:
    QTest.keyClicks(focused(), words)


def tab_to(words: str) -> None:
    """Press Tab until the button with this text has the focus."""
    for _ in range(30):
        button = focused()
        if isinstance(button, Button) and button.words() == words:
            return
        press(Qt.Key.Key_Tab)
    raise AssertionError(f"no Tab stop {words!r}")


def result_of(studio: Studio) -> str:
    result: Any = studio.servers.cluster_sheet._result
    parts = (result._title, result._words, result._models)
    return "\n".join(part.words() for part in parts if not part.isHidden())


async def open_sheet(studio: Studio) -> Any:
    sheet: Any = studio.servers.cluster_sheet
    studio.window.activateWindow()
    studio.actions.trigger("clusters.open")
    await until(lambda: studio.session.connected)
    tab_to("Add a cluster")
    press(Qt.Key.Key_Return)
    await until(lambda: sheet.is_open() and sheet.name.editor.hasFocus())
    return sheet


def test_cluster_is_added_tested_chosen_and_trained_on_by_keyboard(
    engine: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path, ring: MemoryKeyring
) -> None:
    async def job() -> None:
        engine.add_project("inbox-scout")
        engine.clusters.good_keys = {KEY}
        async with studio_on(engine, qapp, tmp_path) as studio:
            await open_project(studio, engine, "inbox-scout")
            sheet = await open_sheet(studio)
            for words in ("hosted", HOSTED.address):
                type_text(words)
                press(Qt.Key.Key_Tab)
            press(Qt.Key.Key_Tab)  # the SDK stays
            type_text("wrong")
            tab_to("Test connection")
            press(Qt.Key.Key_Return)
            await until(lambda: "The cluster refused the API key." in result_of(studio))
            assert engine.clusters.views == {}
            sheet.key.editor.setFocus()
            sheet.key.editor.selectAll()
            type_text(KEY)
            assert result_of(studio) == ""
            tab_to("Test connection")
            press(Qt.Key.Key_Space)
            await until(lambda: "Connected: 3 models" in result_of(studio))
            assert "SDK tinker 0.38.0 · answered in 1.2 s" in result_of(studio)
            assert engine.clusters.checked[-1] == (HOSTED, KEY)
            assert ring.passwords == {}
            tab_to("Save")
            press(Qt.Key.Key_Return)
            await until(lambda: not sheet.is_open())
            assert engine.clusters.keys == {"hosted": KEY}
            assert ring.passwords == {("atelier", "cluster:hosted"): f"{HOSTED.address} {KEY}"}
            assert sheet.key.value() == ""

            studio.window.show_page("setup")
            studio.actions.trigger("engine.choose")
            menu = studio.frame.switcher.menu
            action = next(one for one in menu.actions() if one.text().startswith("hosted"))
            assert action.text() == "hosted · cluster, not tested"
            menu.setActiveAction(action)
            QTest.keyClick(menu, Qt.Key.Key_Return)
            assert studio.window.header.pill.text() == "hosted · cluster"
            setup: Any = studio.pages["setup"]
            note = setup._form._backend.rows["backend.cluster"].note()
            assert note.startswith("In the header, hosted is chosen. Tokens leave this machine")
            assert "tinker.example" in note
            assert "8 groups × 8 rollouts × 256 tokens" in note
            checks = [line.accessibleName() for line in setup._preflight._checks]
            assert any("Tokens are sent to tinker.example" in words for words in checks), checks
            assert setup._form._line.words().endswith("inbox-scout --cluster hosted")

            engine.clusters.keys.clear()
            studio.actions.trigger("run.train")
            await until(lambda: engine.started)
            assert engine.started[0].overrides == {"backend.cluster": "hosted"}
            assert engine.started[0].host == ""
            assert engine.clusters.keys == {"hosted": KEY}

    run(job())


def test_form_names_what_is_wrong(
    engine: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path, ring: MemoryKeyring
) -> None:
    async def job() -> None:
        engine.clusters.put(TUNNEL)
        async with studio_on(engine, qapp, tmp_path) as studio:
            await until(lambda: studio.session.clusters.all)
            sheet = await open_sheet(studio)
            for name, address, row, words in (
                ("", "https://h", "name", "The name must begin with a letter or digit"),
                ("a b", "https://h", "name", "The name must begin with a letter or digit"),
                ("lab-8xh100", "https://h", "name", "already exists"),
                ("new", "", "address", "The base URL must begin with https://"),
                ("new", "https://key@h", "address", "no user name or API key"),
                ("new", "http://gpu.example", "address", "Not encrypted. Use https://"),
            ):
                sheet.name.set_value(name)
                sheet.address.set_value(address)
                sheet.name.editor.setFocus()
                press(Qt.Key.Key_Return)
                assert words in sheet._rows[row].problem(), (name, address)
                other = "address" if row == "name" else "name"
                assert sheet._rows[other].problem() == ""
            assert engine.clusters.checked == []
            assert list(engine.clusters.views) == ["lab-8xh100"]
            press(Qt.Key.Key_Escape)
            assert not sheet.is_open()

    run(job())


def test_stored_key_is_kept_but_never_sent_to_another_address(
    engine: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path, ring: MemoryKeyring
) -> None:
    async def job() -> None:
        engine.clusters.put(HOSTED)
        ring.set_password("atelier", cluster_slot("hosted"), slot_content(HOSTED, KEY))
        async with studio_on(engine, qapp, tmp_path) as studio:
            await until(lambda: studio.session.clusters.all)
            studio.actions.trigger("clusters.open")
            page: Any = studio.pages["settings"]
            row = page.clusters.rows["hosted"]
            studio.window.activateWindow()
            row._edit.setFocus()
            press(Qt.Key.Key_Return)
            sheet: Any = studio.servers.cluster_sheet
            await until(lambda: "A key is stored." in sheet._rows["key"].note())
            assert sheet.name.isEnabled() is False
            sheet._test.setFocus()
            press(Qt.Key.Key_Return)
            await until(lambda: "Connected" in result_of(studio))
            assert engine.clusters.checked == [(HOSTED, KEY)]
            sheet.address.set_value("https://other.example")
            press(Qt.Key.Key_Return)
            assert "Enter the API key again" in sheet._rows["key"].problem()
            assert len(engine.clusters.checked) == 1
            type_text("another-key")
            tab_to("Save")
            press(Qt.Key.Key_Return)
            await until(lambda: not sheet.is_open())
            other = ClusterSpec(name="hosted", address="https://other.example")
            assert await cluster_key(other) == "another-key"
            assert await cluster_key(HOSTED) == ""

            ring.set_password("atelier", cluster_slot("hosted"), slot_content(HOSTED, KEY))
            engine.clusters.keys.clear()
            studio.session.clusters.test("hosted")
            await until(lambda: len(engine.clusters.checked) == 2)
            assert engine.clusters.checked[1] == (other, "")

    run(job())


def test_cluster_without_keyring_is_saved_and_its_key_is_lent(
    engine: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    async def missing(*_: object) -> None:
        raise api_keys.KeyringError.of(api_keys.NO_KEYRING, "This machine has no keyring.")

    for name in ("get", "put", "delete"):
        monkeypatch.setattr(api_keys, name, missing)

    async def job() -> None:
        async with studio_on(engine, qapp, tmp_path) as studio:
            sheet = await open_sheet(studio)
            sheet.name.set_value("hosted")
            sheet.address.set_value(HOSTED.address)
            sheet.key.set_value(KEY)
            press(Qt.Key.Key_Return)
            await until(lambda: "its API key is not stored" in result_of(studio))
            assert engine.clusters.keys == {"hosted": KEY}
            assert list(engine.clusters.views) == ["hosted"]
            sheet.close_sheet()
            studio.session.clusters.remove("hosted")
            await until(lambda: not studio.session.clusters.all)

    run(job())


def test_removal_is_confirmed_and_forgets_key_and_choice(
    engine: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path, ring: MemoryKeyring
) -> None:
    async def job() -> None:
        engine.clusters.put(HOSTED)
        ring.set_password("atelier", cluster_slot("hosted"), slot_content(HOSTED, KEY))
        async with studio_on(engine, qapp, tmp_path) as studio:
            await until(lambda: studio.session.clusters.all)
            studio.settings.update(clusters={"/p/a": "hosted", "/p/b": "lab"})
            studio.actions.trigger("clusters.open")
            page: Any = studio.pages["settings"]
            for answer in ("Cancel", "Remove"):
                studio.window.activateWindow()
                remove = page.clusters.rows["hosted"]._remove
                remove.setFocus()
                QTest.keyClick(remove, Qt.Key.Key_Return)
                await until(lambda: isinstance(QApplication.activeModalWidget(), Question))
                question: Any = QApplication.activeModalWidget()
                assert question.windowTitle() == "Remove hosted from the list?"
                buttons = question.findChildren(Button)
                button = next(one for one in buttons if one.words() == answer)
                button.setFocus()
                QTest.keyClick(button, Qt.Key.Key_Return)
                await until(lambda: QApplication.activeModalWidget() is None)
                assert answer == "Remove" or "hosted" in engine.clusters.views
            await until(lambda: not studio.session.clusters.all and not ring.passwords)
            assert studio.settings.current.clusters == {"/p/b": "lab"}

    run(job())


def test_refusals_are_shown_in_the_sheet(
    engine: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path, ring: MemoryKeyring
) -> None:
    async def job() -> None:
        engine.refuse["/clusters/check"] = Problem(
            code="environment.missing", message="The SDK cannot be installed.", hint="Free disk."
        )
        async with studio_on(engine, qapp, tmp_path) as studio:
            sheet = await open_sheet(studio)
            sheet.name.set_value("hosted")
            sheet.address.set_value(HOSTED.address)
            tab_to("Test connection")
            press(Qt.Key.Key_Return)
            await until(lambda: "The SDK cannot be installed. Free disk." in result_of(studio))
            assert not sheet._test.is_busy()

    run(job())


def test_sweep_and_resumed_run_get_the_key_of_their_cluster(
    engine: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path, ring: MemoryKeyring
) -> None:
    async def job() -> None:
        engine.clusters.put(HOSTED)
        ring.set_password("atelier", cluster_slot("hosted"), slot_content(HOSTED, KEY))
        add_runs(engine)
        async with runs_page(engine, qapp, tmp_path) as page:
            session = page.session
            await until(lambda: session.clusters.all)
            session.choose_place("", "hosted")
            page.sweeps._start({"train.steps": 5})
            await until(lambda: engine.sweeps.started)
            expected = {"backend.cluster": "hosted", "train.steps": 5}
            assert engine.sweeps.started[0].overrides == expected
            assert engine.clusters.keys == {"hosted": KEY}

            engine.clusters.keys.clear()
            session.choose_place("", "")
            stored = next(one for one in session.runs.of(session.project.path))
            session.following.begin(stored.id)
            state = session.runs.state(stored.id)
            await until(lambda: state.spec)
            backend = state.spec.config.backend.model_copy(update={"cluster": "hosted"})
            config = state.spec.config.model_copy(update={"backend": backend})
            state.spec = state.spec.model_copy(update={"config": config})
            session.command("resume", run_id=stored.id)
            await until(lambda: engine.commands)
            assert engine.clusters.keys == {"hosted": KEY}

    run(job())
