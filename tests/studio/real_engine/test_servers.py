"""Add a server in the window over a real engine process and SSH shell, up to the survey report."""

import asyncio
import contextlib
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from engine.protocol.problems import Refused
from engine.protocol.requests.remote import HostSpec
from studio.services.notifications import Question
from studio.widgets.controls.buttons import Button
from tests.studio.conftest import Run, until
from tests.studio.real_window import window

if TYPE_CHECKING:
    from tests.support.ssh_server import FarSide

SOON_S = 30.0


def dialog() -> Any:
    prompt = QApplication.activeModalWidget()
    return prompt if isinstance(prompt, Question) else None


async def wait_for_dialog(title: str) -> Any:
    await until(lambda: (one := dialog()) is not None and one.windowTitle() == title, SOON_S)
    return dialog()


@pytest.mark.timeout(120)
def test_unknown_server_with_password_is_surveyed(
    run: Run,
    qapp: QApplication,
    tmp_path: Path,
    far: "FarSide",
    clean_home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    far.manners.keys, far.manners.password = False, "sesame"
    far.manners.code = "123456"
    ssh = clean_home / ".ssh"
    ssh.mkdir(mode=0o700)
    host, port = far.address.rpartition("@")[2].split(":")
    user = far.address.partition("@")[0]
    config = f"Host box\n  HostName {host}\n  Port {port}\n  User {user}\n"
    (ssh / "config").write_text(config)
    (tmp_path / "workspace").mkdir()
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)

    async def job() -> None:
        async with window(qapp, tmp_path / "workspace") as studio:
            studio.actions.trigger("servers.add")
            wizard: Any = studio.servers.wizard
            await until(lambda: wizard._form.address.choices() == ["box"], SOON_S)
            QTest.keyClicks(wizard._form.address.line, "box")
            QTest.keyClick(wizard._form.address.line, Qt.Key.Key_Return)
            prompt = await wait_for_dialog("Verify the host key of box")
            assert prompt.field.fingerprint.words().startswith("SHA256:")
            trust = next(b for b in prompt.findChildren(Button) if b.words() == "Trust and connect")
            QTest.keyClick(trust, Qt.Key.Key_Return)
            prompt = await wait_for_dialog("Password for box")
            QTest.keyClicks(prompt.field.line, "sesame")
            QTest.keyClick(prompt.field.line, Qt.Key.Key_Return)
            prompt = await wait_for_dialog("box asks for a code")
            QTest.keyClicks(prompt.field.editor, "123456")
            QTest.keyClick(prompt.field.editor, Qt.Key.Key_Return)
            await until(lambda: wizard._shown == "report", SOON_S)
            view = studio.session.hosts.view("box")
            assert view is not None
            assert view.report is not None
            assert view.report.cores == os.cpu_count()
            assert wizard._main.words() == "Install"
            wizard._later.click()
            hosts = studio.session.hosts
            hosts.add(HostSpec(name="nobody", address="127.0.0.1:1"))
            words = "reconnecting (3rd attempt"
            await until(lambda: hosts.words("nobody").text.startswith(words), SOON_S)
            assert hosts.words("nobody").text.endswith(": connection refused")
            with pytest.raises(Refused, match="refused the connection"):
                await hosts.ready("nobody")
            for name in ("box", "nobody"):
                hosts.act(name, "forget")
            await until(lambda: not hosts.all, SOON_S)

    run(job())


def ssh_children(engine_pid: int) -> list[psutil.Process]:
    """Processes of the engine that talk SSH, or forward for it."""
    children = psutil.Process(engine_pid).children(recursive=True)
    return [one for one in children if "ssh" in one.name()]


@pytest.mark.timeout(120)
def test_cancelled_sheet_ends_the_attempt_on_the_engine(
    run: Run, qapp: QApplication, tmp_path: Path, clean_home: Path
) -> None:
    """A server that accepts the connection and never says a word."""
    (tmp_path / "workspace").mkdir()
    silent = socket.create_server(("127.0.0.1", 0))
    connections: list[socket.socket] = []
    silent.setblocking(False)

    async def job() -> None:
        async with window(qapp, tmp_path / "workspace") as studio:
            studio.actions.trigger("servers.add")
            wizard: Any = studio.servers.wizard
            wizard._form.address.set_value(f"127.0.0.1:{silent.getsockname()[1]}")
            wizard._form.name.set_value("silent")
            wizard._main.click()
            loop = asyncio.get_running_loop()
            async with asyncio.timeout(SOON_S):
                while not connections:
                    with contextlib.suppress(BlockingIOError):
                        connections.append(silent.accept()[0])
                    await asyncio.sleep(0.02)
            assert wizard._shown == "waiting"
            info = studio.session.feed.link.info
            assert info is not None
            QTest.keyClick(wizard, Qt.Key.Key_Escape)
            connections[0].setblocking(False)

            def gone() -> bool:
                try:
                    return connections[0].recv(4096) == b""
                except BlockingIOError:
                    return False
                except ConnectionResetError:
                    return True

            await until(gone, SOON_S)
            await until(lambda: not ssh_children(info.pid), SOON_S)

            def away() -> bool:
                view = studio.session.hosts.view("silent")
                assert view is not None
                return view.state == "away"

            await until(away, SOON_S)  # the change arrives as an event
            ended = loop.time()
            while loop.time() < ended + 1.5:  # and it does not come back
                with pytest.raises(BlockingIOError):
                    silent.accept()
                await asyncio.sleep(0.1)

    try:
        run(job())
    finally:
        for one in (*connections, silent):
            one.close()
