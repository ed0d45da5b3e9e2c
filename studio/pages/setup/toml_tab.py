"""project.toml as text, with what is wrong with it below."""

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QHBoxLayout, QPlainTextEdit, QVBoxLayout, QWidget

from engine.protocol.problems import Problem
from studio.theme import theme
from studio.widgets.buttons import Button
from studio.widgets.card import Card
from studio.widgets.text import Text


class TomlTab(QWidget):
    """`save_wanted(text)`."""

    save_wanted = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._saved = ""
        self.editor = QPlainTextEdit()
        self.editor.setAccessibleName("project.toml")
        self.editor.setFont(theme().font("mono"))
        self.editor.setLineWrapMode(QPlainTextEdit.LineWrapMode.NoWrap)
        self.editor.setTabChangesFocus(True)
        self._words = Text("", "label", 400, "muted", wrap=True)
        self._save = Button("Save", "outlined", icon="save", key="Ctrl S")
        self._save.clicked.connect(self.save)
        self.editor.textChanged.connect(self._changed)
        line = QHBoxLayout()
        line.addWidget(self._words, 1)
        line.addWidget(self._save)
        column = QVBoxLayout(self)
        column.setContentsMargins(24, 8, 24, 16)
        column.setSpacing(8)
        card = Card(padding=6)
        card.body.addWidget(self.editor)
        column.addWidget(card, 1)
        column.addLayout(line)

    @property
    def dirty(self) -> bool:
        return self.editor.toPlainText() != self._saved

    def show_text(self, text: str, problems: list[Problem]) -> None:
        """The file as it is; what a person is typing is not taken away."""
        if not self.dirty or not self._saved:
            self._saved = text
            if self.editor.toPlainText() != text:
                self.editor.setPlainText(text)
        self._saved = text
        self.show_problems(problems)

    def show_problems(self, problems: list[Problem]) -> None:
        self.editor.setProperty("problem", bool(problems))
        self.editor.style().polish(self.editor)
        self._words.set_tone("bad" if problems else "muted")
        lines = [str(problem) for problem in problems]
        self._words.set_words(
            "\n".join(lines) or "Comments are kept when the form changes a value."
        )
        self._changed()

    def save(self) -> None:
        if self.dirty:
            self.save_wanted.emit(self.editor.toPlainText())

    def _changed(self) -> None:
        self._save.setEnabled(self.dirty)
