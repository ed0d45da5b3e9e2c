"""Command for a terminal: title, text, copy button and an optional note."""

from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QApplication, QWidget

from studio.widgets.controls.buttons import Button
from studio.widgets.layouts import STRETCH, hbox, vbox
from studio.widgets.text.text import Text


class CommandBlock(QWidget):
    """Command with a button that copies it."""

    def __init__(
        self, title: str, command: str, note: str = "", parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self.title, self.command = title, command
        self._copy = Button("Copy", "quiet", icon="copy", height=24)
        self._copy.setAccessibleDescription(f"Copy: {title}")
        self._copy.clicked.connect(self._copied)
        head = hbox(Text(title, "caption", 500, "muted"), STRETCH, self._copy)
        words = Text(command, "mono-small", 400, "text", wrap=True, selectable=True)
        column = vbox(head, words, parent=self, spacing=2)
        if note:
            column.addWidget(Text(note, "caption", 400, "faint", wrap=True))

    def _copied(self) -> None:
        QApplication.clipboard().setText(self.command)
        self._copy.set_words("Copied")
        QTimer.singleShot(1000, self._copy, lambda: self._copy.set_words("Copy"))
