"""Figures with captions, side by side: Run ends in, Judge spend, Per step."""

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QRectF, QSize
from PySide6.QtGui import QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from studio.widgets.painting import paint


@dataclass(frozen=True)
class Fact:
    """Caption, figure, text after it (of $6.00) or below it, and the tone of the figure."""

    caption: str
    figure: str
    after: str = ""
    below: str = ""
    tone: str = "text"


class FactRow(QWidget):
    """Row of facts: `set_facts([Fact("Run ends in", "2 h 40 min"), …])`; with `spread`, the last is
    right-aligned."""

    def __init__(self, *, spread: bool = True, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._facts: tuple[Fact, ...] = ()
        self._spread = spread
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def set_facts(self, facts: Sequence[Fact]) -> None:
        self._facts = tuple(facts)
        texts = (" ".join(p for p in (f.caption, f.figure, f.after, f.below) if p) for f in facts)
        self.setAccessibleName("; ".join(texts))
        self.updateGeometry()
        self.update()

    def _width(self, fact: Fact) -> float:
        figure = paint.text_width(fact.figure, "title")
        after = 5 + paint.text_width(fact.after, "caption") if fact.after else 0
        words = max(
            paint.text_width(fact.caption, "caption"), paint.text_width(fact.below, "caption")
        )
        return max(words, figure + after)

    def sizeHint(self) -> QSize:
        tall = any(fact.below for fact in self._facts)
        return QSize(round(sum(self._width(f) + 16 for f in self._facts)), 58 if tall else 42)

    def paintEvent(self, event: QPaintEvent) -> None:
        if not self._facts:
            return
        widths = [self._width(fact) for fact in self._facts]
        gaps = max(1, len(widths) - 1)
        gap = max(12.0, (self.width() - sum(widths)) / gaps)
        x = 0.0
        with paint.painting(self) as painter:
            for index, (fact, width) in enumerate(zip(self._facts, widths, strict=True)):
                if not self._spread:
                    x = index * self.width() / len(widths)
                last = self._spread and index == len(widths) - 1 and index > 0
                self._paint_fact(painter, fact, x, width, last)
                x += width + gap

    def _paint_fact(
        self, painter: paint.QPainter, fact: Fact, x: float, width: float, last: bool
    ) -> None:
        align = paint.RIGHT if last else paint.LEFT
        room = QRectF(x, 0, width + 1, 16)
        paint.text(painter, room, fact.caption, "faint", "caption", align=align, elide=False)
        line = QRectF(x, 18, width + 1, 24)
        used = paint.text(painter, line, fact.figure, fact.tone, "title", align=align, elide=False)
        if fact.after:
            after = QRectF(x + used + 5, 20, width, 22)
            paint.text(painter, after, fact.after, "faint", "caption", elide=False)
        if fact.below:
            below = QRectF(x, 42, width + 1, 16)
            paint.text(painter, below, fact.below, "faint", "caption", align=align, elide=False)
