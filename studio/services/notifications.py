"""Notifications: a toast at the bottom, a banner above the page, and dialogs.

Refused actions are shown as a toast; a problem of the whole window (no engine) as a banner until it
is resolved; questions in a dialog that does not block the rest of the window."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from PySide6.QtCore import QObject, Qt
from PySide6.QtGui import QKeyEvent, QShowEvent
from PySide6.QtWidgets import QDialog, QHBoxLayout, QLineEdit, QWidget

from engine.protocol.problems import Problem
from studio.widgets.cards.toast import Toast
from studio.widgets.controls.buttons import Button
from studio.widgets.forms.form_fields import Field
from studio.widgets.layouts import STRETCH, add, hbox, vbox
from studio.widgets.text.text import Text

WIDTH_PX = 480
BLOCKING = ("engine.", "link.")
"""Prefixes of problem codes that concern the whole window."""


@dataclass(frozen=True)
class Choice:
    """Button of a dialog: key, label and style. Enter presses the primary one, or the one marked as
    `default`, or else the first: a choice of the kind "danger" that deletes data or overwrites it
    is never the default."""

    key: str
    words: str
    kind: str = "outlined"
    price: str = ""
    default: bool = False


class Notifier(QObject):
    """Notifications of one window."""

    def __init__(
        self, window: QWidget, toast: Toast, show_card: Callable[[Problem | None], None]
    ) -> None:
        super().__init__(window)
        self._toast = toast
        self._show_card = show_card
        self._undo: Callable[[], object] | None = None
        self._toast.undo_requested.connect(self._undone)

    def say(self, words: str, undo: Callable[[], object] | None = None) -> None:
        """Show a toast for six seconds, with an Undo button that calls `undo` (None: no button)."""
        self._undo = undo
        self._toast.say(words, undo="Undo" if undo else "")

    def warn(self, words: str) -> None:
        """Show a toast in the colour of warnings."""
        self._undo = None
        self._toast.say(words, tone="warn", icon="triangle-alert")

    def problem(self, problem: Problem) -> None:
        """Show a problem as a toast, or as a banner if it concerns the whole window."""
        if problem.code.startswith(BLOCKING):
            self._show_card(problem)
            return
        self._undo = None
        words = f"{problem.message} {problem.hint}".strip()
        self._toast.say(words, tone="bad", icon="octagon-alert")

    def resolved(self) -> None:
        """Remove the banner after the engine has been reconnected."""
        self._show_card(None)

    def words(self) -> str:
        """Text of the current toast."""
        return self._toast.words() or ""

    def _undone(self) -> None:
        undo, self._undo = self._undo, None
        if undo is not None:
            undo()


class Question(QDialog):
    """Dialog with title, text, optional field and buttons. Escape answers None; Enter presses the
    default button, wherever the focus is, unless it is on another button."""

    def __init__(
        self,
        parent: QWidget,
        title: str,
        words: str,
        choices: Sequence[Choice],
        field: Field | None = None,
    ) -> None:
        super().__init__(parent)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle(title)
        self.setMinimumWidth(WIDTH_PX)
        self.answer: str | None = None
        self.field = field
        column = vbox(
            Text(title, "title"),
            Text(words, "body", tone="muted", wrap=True),
            parent=self,
            margins=(24, 20, 24, 20),
            spacing=12,
        )
        if field is not None:
            column.addWidget(field)
        default = default_of(choices)
        button = self._button(default)
        add(column, 8, self._buttons(choices, default, button))
        self._press_default = button.click
        if field is not None and field.findChildren(QLineEdit):
            field.setFocus()
        else:
            # the reason draws the ring: Enter presses this button
            button.setFocus(Qt.FocusReason.TabFocusReason)

    def showEvent(self, event: QShowEvent) -> None:
        """Give wrapped text its full height: a layout requests too little by itself."""
        layout = self.layout()
        if layout is not None:
            self.setFixedWidth(max(self.width(), WIDTH_PX))
            self.setFixedHeight(layout.totalHeightForWidth(self.width()))
        super().showEvent(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self._press_default()
        else:
            super().keyPressEvent(event)

    def _button(self, choice: Choice) -> Button:
        button = Button(choice.words, choice.kind, price=choice.price, height=32)
        button.clicked.connect(lambda: self._answered(choice.key))
        return button

    def _buttons(self, choices: Sequence[Choice], default: Choice, button: Button) -> QHBoxLayout:
        """Lay out a button per choice; that of the `default` exists."""
        line = hbox(STRETCH, spacing=8)
        add(line, *(button if one is default else self._button(one) for one in choices))
        return line

    def _answered(self, key: str) -> None:
        self.answer = key
        self.accept()


def default_of(choices: Sequence[Choice]) -> Choice:
    """Return the choice that Enter takes: the first one marked as default or primary, else the
    first."""
    marked = (choice for choice in choices if choice.default or choice.kind == "primary")
    return next(marked, choices[0])


async def ask(
    parent: QWidget, title: str, words: str, choices: Sequence[Choice], field: Field | None = None
) -> tuple[str | None, Any]:
    """Ask a question in a dialog and wait for its end. Returns the key of the chosen button (None:
    Escape) and the value of the input `field` (None: no field)."""
    loop = asyncio.get_running_loop()
    answered: asyncio.Future[tuple[str | None, Any]] = loop.create_future()
    question = Question(parent, title, words, choices, field)

    def finish() -> None:
        if not answered.done():
            value = field.value() if field is not None else None  # type: ignore[attr-defined]
            answered.set_result((question.answer, value))

    question.finished.connect(finish)
    question.open()
    try:
        return await answered
    finally:
        if not answered.done() or answered.cancelled():
            question.close()
