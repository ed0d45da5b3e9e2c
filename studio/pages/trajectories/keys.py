"""Binding of the page shortcuts (`studio.actions.keymap`), muted in text fields and controls."""

from collections.abc import Callable, Collection
from functools import partial

from PySide6.QtCore import QObject, Qt
from PySide6.QtGui import QKeySequence, QShortcut
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractSpinBox,
    QApplication,
    QComboBox,
    QLineEdit,
    QPlainTextEdit,
    QTextEdit,
    QWidget,
)

from studio.actions.keymap import TRAJECTORIES
from studio.widgets.controls.segmented import Segmented
from studio.widgets.text.chip import FilterChip
from studio.widgets.text.phrase import Phrase

Handlers = dict[str, Callable[..., object]]
_OF_CONTROLS = frozenset({"Space", "Return", "Enter", "Left", "Right", "Up", "Down"})
"""Keys used by a focused button or switch."""


class PageKeys(QObject):
    """Shortcuts of a page. `handlers`: shortcut id → callable; ids without one are not bound."""

    def __init__(self, page: QWidget, handlers: Handlers) -> None:
        super().__init__(page)
        self._keys: list[tuple[str, str, QShortcut]] = []
        self._muted: frozenset[str] = frozenset()
        for row in TRAJECTORIES:
            handler = handlers.get(row.id)
            if handler is None:
                continue
            for place, keys in enumerate(row.sequences):
                shortcut = QShortcut(QKeySequence(keys), page)
                shortcut.setContext(Qt.ShortcutContext.WidgetWithChildrenShortcut)
                shortcut.setAutoRepeat(row.id.startswith("view."))
                shortcut.activated.connect(partial(handler, place) if row.each else handler)
                self._keys.append((row.id, keys, shortcut))
        app = QApplication.instance()
        assert isinstance(app, QApplication)
        app.focusChanged.connect(self._follow_focus)

    def mute(self, ids: Collection[str]) -> None:
        """Disable the shortcuts with these ids, and enable all others."""
        self._muted = frozenset(ids)
        self._enable(QApplication.focusWidget())

    def _follow_focus(self, before: QWidget | None, now: QWidget | None) -> None:
        self._enable(now)

    def _enable(self, focus: QWidget | None) -> None:
        typing, control = types_in(focus), presses(focus)
        for key_id, keys, shortcut in self._keys:
            taken = typing or (control and keys in _OF_CONTROLS)
            shortcut.setEnabled(not taken and key_id not in self._muted)


def types_in(widget: QWidget | None) -> bool:
    """Return whether a widget accepts text."""
    if isinstance(widget, (QPlainTextEdit, QTextEdit)):
        return not widget.isReadOnly()
    return isinstance(widget, (QLineEdit, QAbstractSpinBox, QComboBox))


def presses(widget: QWidget | None) -> bool:
    """Return whether a focused widget handles Space, Enter or arrow keys itself."""
    return isinstance(widget, (QAbstractButton, FilterChip, Segmented, Phrase))
