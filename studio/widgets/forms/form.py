"""Form rows: label, editor, help as a tooltip, and a message under the control."""

from typing import Any

from PySide6.QtCore import QEvent, Qt, Signal
from PySide6.QtWidgets import QWidget

from studio.theme.plain_tooltips import set_tip
from studio.widgets.forms.form_fields import Field
from studio.widgets.forms.pending_field import Entry
from studio.widgets.layouts import hbox, vbox
from studio.widgets.text.phrase import Phrase, Span
from studio.widgets.text.text import Text


class FormRow(QWidget):
    """Form row: `FormRow("learning_rate", "Learning rate", NumberField("Learning rate"),
    help="…")`. Signals: `edited(key, value)` for each change by the user, `entered(key, value)` for
    each finished one (`at_once`: for each valid one), `link_activated(name)` for the link of a
    note. The owner calls `show_stored` with the stored value and `answer` with the result of an
    edit."""

    edited = Signal(str, object)
    entered = Signal(str, object)
    link_activated = Signal(str)

    def __init__(
        self,
        key: str,
        label: str,
        field: Field,
        *,
        help: str = "",
        label_px: int = 168,
        at_once: bool = False,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self.key = key
        self.field = field
        self.entry = Entry(field, at_once)
        self._label = Text(label, "label", 400, "muted", wrap=True)
        self._label.setFixedWidth(label_px)
        self._label.setMinimumHeight(32)
        self._label.setBuddy(field)
        self._note, self._tone = Phrase("", "caption", wrap=True), "faint"
        self._note.hide()
        self._note.link_activated.connect(self.link_activated)
        right = vbox(field, self._note, spacing=3)
        line = hbox(parent=self, spacing=16)
        line.addWidget(self._label, 0, Qt.AlignmentFlag.AlignTop)
        line.addLayout(right, 1)
        self.set_help(help)
        field.edited.connect(lambda value: self.edited.emit(self.key, value))
        self.entry.entered.connect(lambda value: self.entered.emit(self.key, value))
        self.entry.problem_changed.connect(self.set_problem)

    def set_label(self, label: str) -> None:
        self._label.set_words(label)
        self.field.editor.setAccessibleName(label)

    def set_help(self, help: str) -> None:
        """Set the tooltip, for pointer and F1; plain text."""
        set_tip(self, help)
        self.field.editor.setAccessibleDescription(help)

    def show_stored(self, value: Any, note: str = "", tone: str = "info") -> None:
        """Show the stored value, with a note in a theme tone under it (empty: none); text being
        typed and refused values are kept."""
        self.entry.show(value)
        if not self.entry.refused:
            self.set_note(note, tone)

    def answer(self, words: str, link: tuple[str, str] = ("", "")) -> None:
        """Show the result of an edit: why it was refused, or nothing if it was stored (`words`
        empty). `link`: text and id of a link."""
        self.entry.answered(bool(words))
        self.set_problem(words, link)

    def set_problem(self, words: str, link: tuple[str, str] = ("", "")) -> None:
        """Show an error under the field; empty text removes it. `link`: text and id of a link."""
        self._say(words, "bad", link)
        self.field.set_problem(bool(words))

    def set_note(self, words: str, tone: str = "faint", link: tuple[str, str] = ("", "")) -> None:
        """Show a note under the field, in the colour `tone`; `link`: text and id of a link."""
        self._say(words, tone, link)
        self.field.set_problem(False)

    def note(self) -> str:
        """Return the text under the control: a note or a problem."""
        return self._note.words()

    def problem(self) -> str:
        """Text of the problem; empty if none."""
        return self._note.words() if self._tone == "bad" else ""

    def set_locked(self, words: str) -> None:
        """Disable the row and show the reason `words`; empty text enables it."""
        self.field.setEnabled(not words)
        self.set_note(words)

    def _say(self, words: str, tone: str, link: tuple[str, str]) -> None:
        self._tone = tone
        spans = [Span(words, tone)]
        if words and link[0]:
            spans += [Span("  "), Span(link[0], "accent", 500, link=link[1])]
        self._note.set_spans(spans)
        self._note.setVisible(bool(words))

    def changeEvent(self, event: QEvent) -> None:
        if event.type() == QEvent.Type.EnabledChange:
            self._label.set_tone("muted" if self.isEnabled() else "faint")
        super().changeEvent(event)
