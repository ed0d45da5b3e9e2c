"""Card: `surface` background, hairline edge, radius 8, and a 36 px header with title, text and a
right side."""

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QMouseEvent, QPaintEvent
from PySide6.QtWidgets import QHBoxLayout, QSizePolicy, QVBoxLayout, QWidget

from studio.widgets.layouts import vbox
from studio.widgets.painting import paint
from studio.widgets.painting.focus import Pressable
from studio.widgets.text.text import Text


class CardHeader(QWidget):
    """Header of a card: title 12/600, text in `muted`, then widgets at the right."""

    def __init__(self, title: str = "", words: str = "", parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setFixedHeight(36)
        self.title = Text(title, "label", 600)
        self.words = Text(words, "label", 400, "muted", elide=True)
        line = self._line = QHBoxLayout(self)
        line.setContentsMargins(12, 0, 12, 0)
        line.setSpacing(8)
        line.addWidget(self.title)
        line.addWidget(self.words, 1)

    def set_words(self, words: str, tone: str = "muted") -> None:
        """Change the text after the title; `tone` is the name of its colour."""
        self.words.set_words(words)
        self.words.set_tone(tone)

    def add_right(self, widget: QWidget) -> None:
        self._line.addWidget(widget)


# tone -> (fill, edge)
_TONES = {
    "plain": ("surface", "border"),
    "raised": ("raised", "border-strong"),
    "warn": ("warn-soft", "warn-line"),
    "bad": ("surface", "bad-line"),
    "accent": ("accent-soft", "accent-line"),
    "human": ("human-soft", "human-line"),
}


class Card(QWidget):
    """Card with a header: `card = Card("Groups in flight"); card.body.addWidget(...)`. Tones:
    plain, warn, bad, accent, human (they carry meaning, never decoration). A selected card has an
    accent edge."""

    def __init__(
        self,
        title: str = "",
        words: str = "",
        *,
        padding: int = 12,
        tone: str = "plain",
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self._tone = tone
        self._chosen = False
        column = vbox(parent=self, margins=1, spacing=0)
        self.header: CardHeader | None = None
        if title:
            self.header = CardHeader(title, words)
            column.addWidget(self.header)
        inside = QWidget()
        self.body = QVBoxLayout(inside)
        top = 0 if title else padding
        side = max(0, padding - 1)
        self.body.setContentsMargins(side, top, side, side)
        self.body.setSpacing(8)
        column.addWidget(inside, 1)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Preferred)
        if title:
            self.setAccessibleName(title)

    def set_tone(self, tone: str) -> None:
        """Set edge and background colour: plain, raised, warn, bad, accent or human."""
        self._tone = tone
        self.update()

    def set_chosen(self, chosen: bool) -> None:
        """Show or hide the accent edge of a selected card."""
        self._chosen = chosen
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        fill, edge = _TONES[self._tone]
        with paint.painting(self) as painter:
            paint.box(painter, self.rect(), fill, "accent" if self._chosen else edge, 8)


class ChoiceCard(Pressable, Card):
    """Selectable card, as used by Setup and Export: name and figure, one line below."""

    pressed = Signal()
    ring_radius = 8.0

    def __init__(
        self,
        title: str,
        figure: str = "",
        words: str = "",
        *,
        icon: str = "",
        icon_tone: str = "muted",
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(padding=0, tone="raised", parent=parent)
        self._title, self._figure, self._words = title, figure, words
        self._icon, self._icon_tone = icon, icon_tone
        self.setFixedHeight(50)
        self.setMinimumWidth(120)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.set_values(figure, words)

    def set_values(self, figure: str, words: str) -> None:
        """Change `figure`, the text at the right, and `words`, the line below the title."""
        self._figure, self._words = figure, words
        self.setAccessibleName(", ".join(part for part in (self._title, figure, words) if part))
        self.update()

    def set_chosen(self, chosen: bool) -> None:
        """Show or hide accent edge and tint of a selected card."""
        super().set_chosen(chosen)
        self.set_tone("accent" if chosen else "raised")

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        with paint.painting(self) as painter:
            x = 10.0
            if self._icon:
                paint.icon(painter, paint.QPointF(x, 10), self._icon, self._icon_tone, 14)
                x += 20
            first = paint.QRectF(x, 7, self.width() - x - 10, 20)
            used = paint.text_width(self._figure, "mono")
            tone = "text" if self.isEnabled() else "faint"
            named = first.adjusted(0, 0, -used - 6, 0)
            paint.text(painter, named, self._title, tone, "label", 600)
            mark = "text" if self._chosen else "faint"
            paint.text(painter, first, self._figure, mark, "mono", align=paint.RIGHT, elide=False)
            below = paint.QRectF(10, 27, self.width() - 20, 16)
            paint.text(painter, below, self._words, "muted", "caption")

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        if event.button() == Qt.MouseButton.LeftButton and self.rect().contains(event.pos()):
            self.pressed.emit()

    def press(self) -> None:
        self.pressed.emit()
