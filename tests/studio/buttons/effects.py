"""Effects of a click: changes in the window and requests to the engine."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import httpx
import shiboken6
from PySide6.QtCore import QObject, QUrl, Slot
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractItemView,
    QApplication,
    QDialog,
    QLabel,
    QLineEdit,
    QMenu,
    QPlainTextEdit,
    QTextEdit,
    QWidget,
)

from studio.app import Studio

Shown = dict[tuple[int, str], tuple[str, str, bool, bool, str]]
"""Class, text, enabled, checked and geometry of visible widgets by address and class.

(A new widget may reuse the address of a deleted one.)
"""


class Opened(QObject):
    """Records URLs that the window opens on the desktop."""

    def __init__(self) -> None:
        super().__init__()
        self.urls: list[str] = []

    @Slot(QUrl)
    def open(self, url: QUrl) -> None:
        self.urls.append(url.toString())


@dataclass
class Watch:
    """Observable effects of a studio: requests, opened URLs, visible widgets, clipboard."""

    studio: Studio
    requests: list[str] = field(default_factory=list)
    opened: Opened = field(default_factory=Opened)

    def look(self) -> "Look":
        clipboard = QApplication.clipboard().text()
        return Look(
            _shown(), self.studio.window.page, clipboard, len(self.requests), len(self.opened.urls)
        )

    def since(self, before: "Look") -> list[str]:
        """Return the effects since a `Look`, one line each, the most significant first."""
        now = self.look()
        lines = list(self.requests[before.requests :])
        lines += [f"url {url}" for url in self.opened.urls[before.urls :]]
        if now.clipboard != before.clipboard:
            lines.append(f"copied {now.clipboard}")
        if now.page != before.page:
            lines.append(f"page {now.page}")
        return lines + list(_differences(before.shown, now.shown))


@dataclass(frozen=True)
class Look:
    """State of a studio at one moment."""

    shown: Shown
    page: str
    clipboard: str
    requests: int
    urls: int


@contextmanager
def record_effects(studio: Studio) -> Iterator[Watch]:
    """Record requests and opened URLs while the window is used."""
    watch = Watch(studio)
    send = httpx.AsyncClient.send

    async def recorded(client: Any, request: httpx.Request, **options: Any) -> httpx.Response:
        body = request.content.decode(errors="replace") if request.content else ""
        watch.requests.append(f"{request.method} {request.url.path} {_short(body)}".strip())
        return await send(client, request, **options)

    QApplication.clipboard().clear()
    for scheme in ("file", "http", "https"):
        QDesktopServices.setUrlHandler(scheme, watch.opened, "open")  # type: ignore[arg-type]
    try:
        with patch.object(httpx.AsyncClient, "send", recorded):
            yield watch
    finally:
        for scheme in ("file", "http", "https"):
            QDesktopServices.unsetUrlHandler(scheme)


def _short(body: str) -> str:
    """Return a request's body without empty values."""
    if not body:
        return ""
    values = json.loads(body)
    if isinstance(values, dict):
        values = {name: value for name, value in values.items() if value not in (None, "", [], {})}
    return json.dumps(values)[:400]


def _shown() -> Shown:
    widgets: Shown = {}
    for top in QApplication.topLevelWidgets():
        if not top.isVisible():
            continue
        for widget in (top, *top.findChildren(QWidget)):
            if widget.isVisible():
                state = _state(widget)
                widgets[shiboken6.getCppPointer(widget)[0], state[0]] = state
    return widgets


def _state(widget: QWidget) -> tuple[str, str, bool, bool, str]:
    checked = isinstance(widget, QAbstractButton) and widget.isChecked()
    place = "{},{} {}x{}".format(*widget.geometry().getRect())  # type: ignore[misc]
    return type(widget).__name__, _words(widget), widget.isEnabled(), checked, place


def _words(widget: QWidget) -> str:
    match widget:
        case QMenu():
            words = " / ".join(action.text() for action in widget.actions() if action.text())
        case QLineEdit() | QLabel():
            words = widget.text()
        case QTextEdit() | QPlainTextEdit():
            words = widget.toPlainText()
        case QAbstractItemView():
            rows = model.rowCount() if (model := widget.model()) is not None else 0
            chosen = widget.selectionModel()
            words = f"{rows} rows, {len(chosen.selectedRows()) if chosen else 0} selected"
        case QDialog():
            words = widget.windowTitle()
        case _:
            own: Any = getattr(widget, "words", None)
            words = own() if callable(own) else ""
            if not isinstance(words, str) or not words:
                words = widget.accessibleName()
    return words[:200]


def _differences(before: Shown, now: Shown) -> Iterator[str]:
    changes: dict[str, list[str]] = {"shown": [], "hidden": [], "words": [], "moved": []}
    for address in now.keys() - before.keys():
        changes["shown"].append(f"shown {_named(now[address])}")
    for address in before.keys() - now.keys():
        changes["hidden"].append(f"hidden {_named(before[address])}")
    for address in now.keys() & before.keys():
        old, new = before[address], now[address]
        if old[:2] != new[:2]:
            changes["words"].append(f"words {_named(old)} -> {new[1]}")
        if old[2] != new[2]:
            changes["words"].append(f"{'enabled' if new[2] else 'disabled'} {_named(new)}")
        if old[3] != new[3]:
            changes["words"].append(f"{'checked' if new[3] else 'unchecked'} {_named(new)}")
        if old[4] != new[4]:
            changes["moved"].append(f"moved {_named(new)} {old[4]} -> {new[4]}")
    for lines in changes.values():
        yield from sorted(lines)


def _named(state: tuple[str, str, bool, bool, str]) -> str:
    return f"{state[0]} {state[1]}".strip()
