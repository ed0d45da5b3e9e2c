"""Desktop notifications through the service of the operating system (desktop-notifier: D-Bus on
Linux, Notification Center on macOS, toasts on Windows)."""

import logging
import os
import sys
from typing import Any

from PySide6.QtCore import QObject, Signal

from studio.runtime.tasks import TaskScope

log = logging.getLogger(__name__)

APP = "Atelier"


class DesktopNotifications(QObject):
    """Desktop notifications of a window. Emits `opened(key)` when the user clicks one."""

    opened = Signal(str)

    def __init__(self, parent: QObject) -> None:
        super().__init__(parent)
        self._tasks = TaskScope(self)
        self._notifier: Any = None

    def show(self, title: str, words: str, key: str) -> None:
        """Show a desktop notification with title and text; does nothing on a desktop without a
        service for them. A click on it emits `opened(key)`."""
        if is_available():
            self._tasks.run(f"show {key}", self._show(title, words, key))

    async def close(self) -> None:
        """End the connection to the desktop's service."""
        await self._tasks.close()
        # desktop-notifier keeps its D-Bus connection open and has no call that ends it
        bus = getattr(getattr(self._notifier, "_backend", None), "bus", None)
        if bus is not None and bus.connected:
            bus.disconnect()
            await bus.wait_for_disconnect()
        self._notifier = None

    async def _show(self, title: str, words: str, key: str) -> None:
        if self._notifier is None:
            from desktop_notifier import DesktopNotifier  # 60 ms, and few runs need it

            self._notifier = DesktopNotifier(APP, app_icon=None)
        await self._notifier.send(title, words, on_clicked=lambda: self.opened.emit(key))


def is_available() -> bool:
    """Return whether this desktop may have a notification service."""
    return sys.platform != "linux" or bool(os.environ.get("DBUS_SESSION_BUS_ADDRESS"))
