"""SSH prompts: shown on any page one after another; which secrets are stored, and until when."""

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


class InMemoryKeyring(keyring.backend.KeyringBackend):
    """Keyring backend that keeps passwords in a dict."""

    priority = 1  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__()
        self.passwords: dict[str, str] = {}

    def get_password(self, service: str, username: str) -> str | None:
        return self.passwords.get(username)

    def set_password(self, service: str, username: str, password: str) -> None:
        self.passwords[username] = password

    def delete_password(self, service: str, username: str) -> None:
        del self.passwords[username]


@pytest.fixture
def ring(monkeypatch: pytest.MonkeyPatch) -> InMemoryKeyring:
    ring = InMemoryKeyring()
    monkeypatch.setattr(keyring, "get_keyring", lambda: ring)
    return ring


@pytest.fixture
def servers(engine: FakeEngine) -> Any:
    engine.servers.put(view())
    engine.servers.installed.add("box")
    return engine.servers


def dialog() -> Any:
    prompt = QApplication.activeModalWidget()
    return prompt if isinstance(prompt, Question) else None


async def wait_for_dialog(title: str) -> Any:
    await until(lambda: (there := dialog()) is not None and there.windowTitle() == title)
    return dialog()


def button(prompt: Any, words: str) -> Button:
    return next(b for b in prompt.findChildren(Button) if b.words() == words)


def test_prompts_are_shown_one_after_another(
    engine: FakeEngine,
    servers: Any,
    run: Run,
    qapp: QApplication,
    tmp_path: Path,
    ring: InMemoryKeyring,
) -> None:
    async def job() -> None:
        servers.asks["box"] = [(HOST_KEY, "yes"), (PASSPHRASE, "sesame"), (CODE, "123456")]
        async with studio_on(engine, qapp, tmp_path) as studio:
            await until(lambda: studio.session.hosts.all)
            studio.session.hosts.act("box", "connect")
            prompt = await wait_for_dialog("Verify the host key of box")
            assert prompt.field.fingerprint.words() == HOST_KEY.detail.partition(" ")[2]
            QTest.keyClick(button(prompt, "Copy"), Qt.Key.Key_Space)
            assert QApplication.clipboard().text() == HOST_KEY.detail.partition(" ")[2]
            button(prompt, "Trust and connect").setFocus()
            QTest.keyClick(button(prompt, "Trust and connect"), Qt.Key.Key_Return)
            prompt = await wait_for_dialog("Passphrase for box")
            QTest.keyClicks(prompt.field.line, "sesame")
            QTest.keyClick(prompt.field.line, Qt.Key.Key_Return)
            prompt = await wait_for_dialog("box asks for a code")
            QTest.keyClicks(prompt.field.editor, "123456")
            QTest.keyClick(prompt.field.editor, Qt.Key.Key_Return)
            await until(lambda: studio.session.hosts.connected("box"))
        assert [value for _, value in servers.answers] == ["yes", "sesame", "123456"]
        assert not ring.passwords, "nothing is stored unless asked for"

    run(job())


def test_escape_stops_connecting(
    engine: FakeEngine,
    servers: Any,
    run: Run,
    qapp: QApplication,
    tmp_path: Path,
    ring: InMemoryKeyring,
) -> None:
    async def job() -> None:
        servers.asks["box"] = [(PASSPHRASE, "sesame")]
        async with studio_on(engine, qapp, tmp_path) as studio:
            await until(lambda: studio.session.hosts.all)
            studio.session.hosts.act("box", "connect")
            prompt = await wait_for_dialog("Passphrase for box")
            QTest.keyClick(prompt, Qt.Key.Key_Escape)
            await until(lambda: servers.views["box"].state == "stopped")
        assert servers.answers == [("q2.0", None)]

    run(job())


def test_stored_secret_is_used_silently_and_deleted_when_wrong(
    engine: FakeEngine,
    servers: Any,
    run: Run,
    qapp: QApplication,
    tmp_path: Path,
    ring: InMemoryKeyring,
) -> None:
    async def job() -> None:
        servers.asks["box"] = [(PASSPHRASE, "sesame")]
        async with studio_on(engine, qapp, tmp_path) as studio:
            hosts = studio.session.hosts
            await until(lambda: hosts.all)
            hosts.act("box", "connect")
            prompt = await wait_for_dialog("Passphrase for box")
            QTest.keyClicks(prompt.field.line, "wrong")
            prompt.field._keep.click()
            QTest.keyClick(prompt.field.line, Qt.Key.Key_Return)
            await until(lambda: len(servers.answers) == 1)
            await until(lambda: (now := dialog()) is not None and now is not prompt)
            assert not ring.passwords, "only a correct secret is stored"
            prompt = dialog()
            QTest.keyClicks(prompt.field.line, "sesame")
            prompt.field._keep.click()
            QTest.keyClick(prompt.field.line, Qt.Key.Key_Return)
            await until(lambda: hosts.connected("box"))
            await until(lambda: ring.passwords == {key_name("box", PASSPHRASE): "sesame"})
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
            prompt = await wait_for_dialog("Passphrase for box")
            assert not ring.passwords
            QTest.keyClick(prompt, Qt.Key.Key_Escape)
            await until(lambda: servers.views["box"].state == "stopped")

    run(job())


def test_withdrawn_prompt_closes_its_dialog(
    engine: FakeEngine,
    servers: Any,
    run: Run,
    qapp: QApplication,
    tmp_path: Path,
    ring: InMemoryKeyring,
) -> None:
    async def job() -> None:
        async with studio_on(engine, qapp, tmp_path) as studio:
            await until(lambda: studio.session.hosts.all)
            servers.change("box", state="asking", questions=[CODE])
            await wait_for_dialog("box asks for a code")
            servers.change("box", state="connecting", questions=[])
            await until(lambda: dialog() is None)
        assert not servers.answers

    run(job())


def test_prompt_of_server_is_kept_as_text_and_shortened() -> None:
    theirs = CODE.model_copy(update={"prompt": "<b>Code</b> " + "x" * 5000})
    words = question_words(theirs)
    assert "<b>Code</b>" in words
    assert len(words) < 700
    assert "reached through mara@gate.lab:22" in question_words(HOST_KEY)
