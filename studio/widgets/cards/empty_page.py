"""Empty state of a page: a drawing, a heading, two sentences and actions."""

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QPointF, QRectF, Qt, Signal
from PySide6.QtGui import QPaintEvent, QPen
from PySide6.QtWidgets import QVBoxLayout, QWidget

from studio.theme.theme import theme
from studio.widgets.cards.card import Card
from studio.widgets.controls.buttons import Button
from studio.widgets.controls.keycap import KeyCap
from studio.widgets.layouts import add, hbox, vbox
from studio.widgets.painting import paint
from studio.widgets.text.phrase import Phrase
from studio.widgets.text.text import Text

_WIDTH = 560


@dataclass(frozen=True)
class Preparation:
    """Preparation step: its state (done, open), text, and an optional button."""

    key: str
    title: str
    words: str
    done: bool = False
    button: str = ""


class EmptyPage(QWidget):
    """Empty state: `EmptyPage(heading, sentences)`, then `set_preparations`, `set_actions`.
    Drawings: run, rows, none."""

    action_requested = Signal()
    second_requested = Signal()
    preparation_requested = Signal(str)

    def __init__(
        self,
        line: str,
        words: str,
        *,
        drawing: str = "none",
        caption: str = "",
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self._inside = QWidget()
        self._inside.setFixedWidth(_WIDTH)
        self._column = vbox(parent=self._inside, spacing=8)
        if drawing != "none":
            add(self._column, _Drawing(drawing, caption), 28)
        self._line = Text(line, "display", 600, wrap=True)
        self._words = Phrase(words, "body", wrap=True)
        add(self._column, self._line, self._words)
        self._card = Card(padding=0)
        self._card.body.setSpacing(0)
        self._card.hide()
        add(self._column, 12, self._card)
        self._foot = hbox(spacing=8)
        add(self._column, 8, self._foot)
        outer = QVBoxLayout(self)
        outer.addStretch(1)
        outer.addWidget(self._inside, 0, Qt.AlignmentFlag.AlignHCenter)
        outer.addStretch(1)
        self.setAccessibleName(line)

    def set_words(self, line: str, words: str) -> None:
        """Change the heading `line` and the sentences below it."""
        self._line.set_words(line)
        self._words.set_spans(words)
        self.setAccessibleName(line)

    def set_actions(
        self, words: str, price: str = "", second: str = "", key: str = "", icon: str = ""
    ) -> None:
        """Set the labels of the primary button (with `price` and icon) and a `second` one, and the
        shortcut `key` shown beside them; empty texts leave a part out."""
        while (item := self._foot.takeAt(0)) is not None:
            if (widget := item.widget()) is not None:
                widget.deleteLater()
        if words:
            first = Button(words, "primary", icon=icon, price=price, height=32)
            first.clicked.connect(self.action_requested)
            self._foot.addWidget(first)
        if second:
            other = Button(second, "outlined", height=32)
            other.clicked.connect(self.second_requested)
            self._foot.addWidget(other)
        self._foot.addStretch(1)
        if key:
            self._foot.addWidget(KeyCap(key))

    def set_preparations(self, items: Sequence[Preparation]) -> None:
        """Set the preparation steps listed under the text."""
        while (old := self._card.body.takeAt(0)) is not None:
            if (widget := old.widget()) is not None:
                widget.deleteLater()
        for index, item in enumerate(items):
            row = _PreparationRow(item, first=index == 0)
            row.requested.connect(self.preparation_requested)
            self._card.body.addWidget(row)
        self._card.setVisible(bool(items))


class _PreparationRow(QWidget):
    """Row of 60 px: a tick or a dashed ring, title and text, "done" or a button."""

    requested = Signal(str)

    def __init__(self, item: Preparation, first: bool) -> None:
        super().__init__()
        self._item, self._first = item, first
        self.setFixedHeight(60)
        self.setAccessibleName(f"{item.title}, {'done' if item.done else 'open'}")
        words = vbox(
            Text(item.title, "body", 500),
            Text(item.words, "label", 400, "muted", elide=True),
            margins=(0, 11, 0, 11),
            spacing=0,
        )
        line = hbox((words, 1), parent=self, margins=(52, 0, 16, 0))
        if item.button:
            button = Button(item.button, "outlined", height=24)
            button.clicked.connect(lambda: self.requested.emit(item.key))
            line.addWidget(button)
        elif item.done:
            line.addWidget(Text("done", "label", 400, "faint"))

    def paintEvent(self, event: QPaintEvent) -> None:
        icon, tone = ("circle-check", "good") if self._item.done else ("circle-dashed", "faint")
        with paint.painting(self) as painter:
            if not self._first:
                painter.fillRect(0, 0, self.width(), 1, theme().color("border"))
            paint.icon(painter, QPointF(17, 21), icon, tone, 18)


class _Drawing(QWidget):
    """Drawing of an empty page: grid lines and empty cells (run), or axes of dots (rows)."""

    def __init__(self, kind: str, caption: str) -> None:
        super().__init__()
        self._kind, self._caption = kind, caption
        self.setFixedHeight(160)

    def paintEvent(self, event: QPaintEvent) -> None:
        color, width = theme().color, self.width()
        with paint.painting(self) as painter:
            if self._kind == "rows":
                for row in range(4):
                    y = 24 + row * 36
                    paint.box(painter, QRectF(0, y - 4, 150 - row * 18, 8), "chip", None, 4)
                    painter.setPen(QPen(color("border-strong"), 1.5, Qt.PenStyle.DotLine))
                    painter.drawLine(QPointF(220, y), QPointF(width - 4, y))
                return
            for y in (0, 60, 120):
                painter.fillRect(QRectF(0, y, width, 1), color("border"))
            painter.setPen(QPen(color("ghost"), 1.5, Qt.PenStyle.DotLine))
            painter.drawLine(QPointF(12, 79), QPointF(width, 79))
            painter.setPen(QPen(color("accent"), 2))
            painter.setBrush(color("accent-soft"))
            painter.drawEllipse(QPointF(6, 79), 5, 5)
            caption = QRectF(0, 86, width, 16)
            paint.text(painter, caption, self._caption, "muted", "caption", align=paint.RIGHT)
            for index in range(40):
                cell = QRectF(index * 14, 140, 12, 17)
                fill, edge = ("accent-soft", "accent") if index == 0 else (None, "border-strong")
                paint.box(painter, cell, fill, edge, 2)
