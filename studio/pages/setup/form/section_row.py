"""Row of the setup form: number, name, description and controls."""

from PySide6.QtGui import QPaintEvent
from PySide6.QtWidgets import QWidget

from studio.theme.theme import theme
from studio.widgets.layouts import STRETCH, add, hbox, vbox
from studio.widgets.painting import paint
from studio.widgets.text.text import Text


class ChoiceRow(QWidget):
    """Row with number, name, description, controls, and a note below."""

    def __init__(self, number: int, name: str, words: str) -> None:
        super().__init__()
        self._number, self._tone = number, "muted"
        self.controls = vbox(spacing=6)
        self._note = Text("", "caption", tone="faint", wrap=True)
        left = vbox(
            Text(name, "body", 600),
            Text(words, "label", 400, "muted", wrap=True),
            STRETCH,
            spacing=2,
        )
        holder = QWidget()
        holder.setFixedWidth(184)
        left.setContentsMargins(0, 0, 0, 0)
        holder.setLayout(left)
        hbox(holder, (self.controls, 1), parent=self, margins=(40, 14, 0, 16), spacing=16)

    def finish(self) -> None:
        """Add the note after all controls were added."""
        add(self.controls, self._note, STRETCH)

    def say(self, words: str, tone: str = "faint") -> None:
        """Show a note (empty: hide it); the tone "bad" also colours the number of the row."""
        self._note.set_tone(tone)
        self._note.set_words(words)
        self._note.setVisible(bool(words))
        self._tone = "bad" if tone == "bad" and words else "muted"
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        with paint.painting(self) as painter:
            badge = paint.QRectF(0, 16, 24, 24)
            paint.box(painter, badge, "chip" if self._tone == "muted" else "bad-soft", None, 4)
            paint.text(painter, badge, str(self._number), self._tone, "label", 600, paint.CENTER)
            line = paint.QRectF(0, self.height() - 1, self.width(), 1)
            painter.fillRect(line, theme().color("border"))
