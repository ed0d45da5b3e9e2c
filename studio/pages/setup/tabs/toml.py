"""Text editor of project.toml, with its problems below."""

from dataclasses import dataclass

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QPlainTextEdit, QWidget

from engine.protocol.problems import Problem
from studio.theme.plain_tooltips import set_tip
from studio.theme.theme import theme
from studio.widgets.cards.card import Card
from studio.widgets.controls.buttons import Button
from studio.widgets.layouts import add, hbox, vbox
from studio.widgets.text.text import Text

KEPT = "Changes made in the form keep the comments of this file."
NOT_SAVED = "Not saved yet."
OUTDATED = "Not saved, and the file changed on disk. When you save, choose which version to keep."


@dataclass(frozen=True)
class _Draft:
    """Unsaved text and the file on which it is based."""

    text: str
    base: str
    read: str = ""
    """Fingerprint of the file."""


class TomlTab(QWidget):
    """Editor tab: `show_text(path, text, problems)`; emits `save_wanted(path, text)`, answered by
    `saved` or `refuse`. Unsaved text is kept per project and restored later."""

    save_wanted = Signal(str, str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._path = self._saved = self._base = ""
        self._saved_mark = self._base_mark = ""
        """Fingerprints of the saved file and of the file on which the edits are based."""
        self._drafts: dict[str, _Draft] = {}
        self._problems: list[Problem] = []
        self._refused: tuple[str, Problem] | None = None
        """Refused text with its problem."""
        self.editor = QPlainTextEdit()
        self.editor.setAccessibleName("project.toml")
        self.editor.setFont(theme().font("mono"))
        self.editor.setLineWrapMode(QPlainTextEdit.LineWrapMode.NoWrap)
        self.editor.setTabChangesFocus(True)
        self._words = Text("", "label", 400, "muted", wrap=True)
        self._discard = Button("Discard", "quiet")
        set_tip(self._discard, "Discard your edits and reload the file.")
        self._discard.clicked.connect(self.discard)
        self._save = Button("Save", "outlined", icon="save", key="Ctrl S")
        self._save.clicked.connect(self.save)
        self.editor.textChanged.connect(self._changed)
        line = hbox((self._words, 1), self._discard, self._save, spacing=8)
        column = vbox(parent=self, margins=(24, 8, 24, 16), spacing=8)
        card = Card(padding=6)
        card.body.addWidget(self.editor)
        add(column, (card, 1), line)

    @property
    def dirty(self) -> bool:
        return self._text != self._saved

    def show_text(self, path: str, text: str, problems: list[Problem], mark: str = "") -> None:
        """Show the project.toml `text` of the project at `path`, and its problems; `mark` is the
        file's fingerprint. Unsaved edits are kept."""
        self._problems = problems
        if path != self._path:
            self._turn(path, text, mark)
        elif self.dirty and self._text != text:
            self._saved, self._saved_mark = text, mark
        else:
            self._saved = self._base = text
            self._saved_mark = self._base_mark = mark
            self._set(text)
        self._changed()

    @property
    def read(self) -> str:
        """Return the fingerprint of the file on which the unsaved text is based."""
        return self._base_mark

    @property
    def file_text(self) -> str:
        """Return the saved text, without unsaved edits."""
        return self._saved

    def saved(self, path: str, text: str, mark: str = "") -> None:
        """Take `text`, which has just been written to the project.toml of the project at `path`, as
        its saved text; `mark` is the file's fingerprint. Edits made since then stay unsaved."""
        if path == self._path:
            self._base, self._base_mark = text, mark
            if self._text == text:
                self._saved, self._saved_mark = text, mark
        elif (draft := self._drafts.get(path)) is not None:
            if draft.text == text:
                del self._drafts[path]
            else:
                self._drafts[path] = _Draft(draft.text, text, mark)

    def refuse(self, text: str, problem: Problem) -> None:
        """Show why `text` was not saved, for as long as the editor has exactly this text."""
        self._refused = text, problem
        self._changed()

    def save(self) -> None:
        if self.dirty:
            self.save_wanted.emit(self._path, self._text)

    def discard(self) -> None:
        self._base, self._base_mark = self._saved, self._saved_mark
        self._set(self._saved)

    @property
    def _text(self) -> str:
        return self.editor.toPlainText()

    def _turn(self, path: str, text: str, mark: str) -> None:
        """Switch to another project and keep the unsaved text of this one."""
        if self.dirty:
            self._drafts[self._path] = _Draft(self._text, self._base, self._base_mark)
        draft = self._drafts.pop(path, _Draft(text, text, mark))
        self._saved_mark, self._base_mark = mark, draft.read
        self._path, self._saved, self._base, self._refused = path, text, draft.base, None
        self._set(draft.text)

    def _set(self, text: str) -> None:
        if self._text != text:
            self.editor.setPlainText(text)

    def _changed(self) -> None:
        if not self.dirty:
            self._base, self._base_mark = self._saved, self._saved_mark
        for button in (self._save, self._discard):
            button.setEnabled(self.dirty)
        refused = self._refused is not None and self._refused[0] == self._text
        problems = [self._refused[1]] if self._refused and refused else self._problems
        self.editor.setProperty("problem", bool(problems))
        self.editor.style().polish(self.editor)
        outdated = self._base != self._saved
        plain = (OUTDATED if outdated else NOT_SAVED) if self.dirty else KEPT
        warned = [plain] if self.dirty and (outdated or not problems) else []
        tone = "bad" if problems else "warn" if self.dirty else "muted"
        self._words.set_tone(tone)
        self._words.set_words("\n".join([*(str(one) for one in problems), *warned]) or KEPT)
