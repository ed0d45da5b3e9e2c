"""Desktop notifications: a private D-Bus daemon with a notification service on it."""

import asyncio
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
from dbus_fast.aio.message_bus import MessageBus
from dbus_fast.annotations import DBusDict, DBusSignature, DBusStr, DBusUInt32
from dbus_fast.service import ServiceInterface, dbus_method, dbus_signal
from PySide6.QtCore import QObject

from studio.services.desktop_notifications import DesktopNotifications, is_available
from tests.studio.conftest import Run, until

pytestmark = pytest.mark.skipif(not shutil.which("dbus-daemon"), reason="no D-Bus daemon here")
NAME, PATH = "org.freedesktop.Notifications", "/org/freedesktop/Notifications"
Words = Annotated[list[str], DBusSignature("as")]
Clicked = Annotated[tuple[int, str], DBusSignature("us")]


class Service(ServiceInterface):
    """What a desktop offers: it keeps the notifications, and clicks them when it is told."""

    def __init__(self) -> None:
        super().__init__(NAME)
        self.shown: list[tuple[str, str, str]] = []

    @dbus_method()
    def GetCapabilities(self) -> Words:
        return ["actions", "body"]

    @dbus_method()
    def GetServerInformation(self) -> Annotated[tuple[str, str, str, str], DBusSignature("ssss")]:
        return ("desktop", "tests", "1", "1.2")

    @dbus_method()
    def Notify(
        self,
        app: DBusStr,
        replaces: DBusUInt32,
        icon: DBusStr,
        title: DBusStr,
        body: DBusStr,
        actions: Words,
        hints: DBusDict,
        timeout: Annotated[int, DBusSignature("i")],
    ) -> DBusUInt32:
        self.shown.append((app, title, body))
        return len(self.shown)

    @dbus_signal()
    def ActionInvoked(self, number: int) -> Clicked:
        return (number, "default")


@pytest.fixture
def session_bus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    address = f"unix:path={tmp_path / 'bus'}"
    command = ["dbus-daemon", "--session", "--nofork", "--print-address", f"--address={address}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as daemon:
        assert daemon.stdout is not None
        daemon.stdout.readline()  # it listens
        monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", address)
        yield address
        daemon.terminate()


def test_notification_is_shown_and_opens_its_run(session_bus: str, run: Run) -> None:
    async def job() -> None:
        service, bus = Service(), await MessageBus(session_bus).connect()
        bus.export(PATH, service)
        await bus.request_name(NAME)
        host = QObject()
        desktop, opened = DesktopNotifications(host), list[str]()
        desktop.opened.connect(opened.append)
        desktop.show("amber-kestrel", "Unscored trajectories: 12.5 %", "run-1")
        await until(lambda: service.shown)
        assert service.shown == [("Atelier", "amber-kestrel", "Unscored trajectories: 12.5 %")]
        await asyncio.sleep(0.05)  # its number is known only after the reply
        service.ActionInvoked(1)
        await until(lambda: opened == ["run-1"])
        await desktop.close()
        bus.disconnect()
        await bus.wait_for_disconnect()

    run(job())


def test_nothing_happens_without_a_desktop(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DBUS_SESSION_BUS_ADDRESS", raising=False)

    async def job() -> None:
        host: Any = QObject()
        desktop = DesktopNotifications(host)
        assert not is_available()
        desktop.show("amber-kestrel", "finished", "run-1")
        assert desktop._notifier is None
        await desktop.close()

    run(job())
