"""Questions of servers: asked wherever one is, in turn; what is kept, and for how long."""

from pathlib import Path
from typing import Any

import keyring
import keyring.backend
import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from studio.services.notifications import Question
from studio.services.ssh_prompts import key_name, question_words
from studio.widgets.controls.buttons import Button
from tests.studio.conftest import Run, until
from tests.studio.fakes.engine import FakeEngine
from tests.studio.fakes.servers import CODE, HOST_KEY, PASSPHRASE, view
from tests.studio.screenshots.pages import studio_on


class InMemory(keyring.backend.KeyringBackend):
    """A keyring that lasts as long as its test."""

    priority = 1  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[str, str] = {}

    def get_password(self, service: str, username: str) -> str | None:
        return self.kept.get(username)

    def set_password(self, service: str, username: str, password: str) -> None:
        self.kept[username] = password

    def delete_password(self, service: str, username: str) -> None:
        del self.kept[username]


@pytest.fixture
def ring(monkeypatch: pytest.MonkeyPatch) -> InMemory:
    ring = InMemory()
    monkeypatch.setattr(keyring, "get_keyring", lambda: ring)
    return ring


@pytest.fixture
def servers(engine: FakeEngine) -> Any:
    engine.servers.put(view())
    engine.servers.installed.add("box")
    return engine.servers


def dialog() -> Any:
    shown = QApplication.activeModalWidget()
    return shown if isinstance(shown, Question) else None


async def asked(title: str) -> Any:
    await until(lambda: (there := dialog()) is not None and there.windowTitle() == title)
    return dialog()


def button(shown: Any, words: str) -> Button:
    return next(b for b in shown.findChildren(Button) if b.words() == words)


def test_every_question_comes_in_turn_wherever_one_is(
    engine: FakeEngine, servers: Any, run: Run, qapp: QApplication, tmp_path: Path, ring: InMemory
) -> None:
    async def job() -> None:
        servers.asks["box"] = [(HOST_KEY, "yes"), (PASSPHRASE, "sesame"), (CODE, "123456")]
        async with studio_on(engine, qapp, tmp_path) as studio:
            await until(lambda: studio.session.hosts.all)
            studio.session.hosts.act("box", "connect")
            shown = await asked("Verify the host key of box")
            assert shown.field.fingerprint.words() == HOST_KEY.detail.partition(" ")[2]
            QTest.keyClick(button(shown, "Copy"), Qt.Key.Key_Space)
            assert QApplication.clipboard().text() == HOST_KEY.detail.partition(" ")[2]
            button(shown, "Trust and connect").setFocus()
            QTest.keyClick(button(shown, "Trust and connect"), Qt.Key.Key_Return)
            shown = await asked("Passphrase for box")
            QTest.keyClicks(shown.field.line, "sesame")
            QTest.keyClick(shown.field.line, Qt.Key.Key_Return)
            shown = await asked("box asks for a code")
            QTest.keyClicks(shown.field.editor, "123456")
            QTest.keyClick(shown.field.editor, Qt.Key.Key_Return)
            await until(lambda: studio.session.hosts.connected("box"))
        assert [value for _, value in servers.answers] == ["yes", "sesame", "123456"]
        assert not ring.kept, "nothing is remembered unless one says so"

    run(job())


def test_escape_gives_up(
    engine: FakeEngine, servers: Any, run: Run, qapp: QApplication, tmp_path: Path, ring: InMemory
) -> None:
    async def job() -> None:
        servers.asks["box"] = [(PASSPHRASE, "sesame")]
        async with studio_on(engine, qapp, tmp_path) as studio:
            await until(lambda: studio.session.hosts.all)
            studio.session.hosts.act("box", "connect")
            shown = await asked("Passphrase for box")
            QTest.keyClick(shown, Qt.Key.Key_Escape)
            await until(lambda: servers.views["box"].state == "stopped")
        assert servers.answers == [("q2.0", None)]

    run(job())


def test_a_kept_secret_is_used_in_silence_and_forgotten_when_it_is_wrong(
    engine: FakeEngine, servers: Any, run: Run, qapp: QApplication, tmp_path: Path, ring: InMemory
) -> None:
    async def job() -> None:
        servers.asks["box"] = [(PASSPHRASE, "sesame")]
        async with studio_on(engine, qapp, tmp_path) as studio:
            hosts = studio.session.hosts
            await until(lambda: hosts.all)
            hosts.act("box", "connect")
            shown = await asked("Passphrase for box")
            QTest.keyClicks(shown.field.line, "wrong")
            shown.field._keep.click()
            QTest.keyClick(shown.field.line, Qt.Key.Key_Return)
            await until(lambda: len(servers.answers) == 1)
            await until(lambda: (now := dialog()) is not None and now is not shown)
            assert not ring.kept, "only what was right is kept"
            shown = dialog()
            QTest.keyClicks(shown.field.line, "sesame")
            shown.field._keep.click()
            QTest.keyClick(shown.field.line, Qt.Key.Key_Return)
            await until(lambda: hosts.connected("box"))
            await until(lambda: ring.kept == {key_name("box", PASSPHRASE): "sesame"})
            hosts.act("box", "disconnect")
            await until(lambda: not hosts.connected("box"))
            hosts.act("box", "connect")
            await until(lambda: hosts.connected("box"))
            assert servers.answers[-1][1] == "sesame"
            assert dialog() is None
            hosts.act("box", "disconnect")
            await until(lambda: not hosts.connected("box"))
            servers.asks["box"] = [(PASSPHRASE, "changed")]
            hosts.act("box", "connect")
            shown = await asked("Passphrase for box")
            assert not ring.kept
            QTest.keyClick(shown, Qt.Key.Key_Escape)
            await until(lambda: servers.views["box"].state == "stopped")

    run(job())


def test_a_question_that_nobody_asks_any_more_goes(
    engine: FakeEngine, servers: Any, run: Run, qapp: QApplication, tmp_path: Path, ring: InMemory
) -> None:
    async def job() -> None:
        async with studio_on(engine, qapp, tmp_path) as studio:
            await until(lambda: studio.session.hosts.all)
            servers.change("box", state="asking", questions=[CODE])
            await asked("box asks for a code")
            servers.change("box", state="connecting", questions=[])
            await until(lambda: dialog() is None)
        assert not servers.answers

    run(job())


def test_what_a_server_writes_stays_text() -> None:
    theirs = CODE.model_copy(update={"prompt": "<b>Code</b> " + "x" * 5000})
    words = question_words(theirs)
    assert "<b>Code</b>" in words
    assert len(words) < 700
    assert "reached through mara@gate.lab:22" in question_words(HOST_KEY)
