"""Figures with captions, side by side: Run ends in, Judge spend, Per step."""

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QRectF, QSize
from PySide6.QtGui import QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from studio.widgets.painting import paint

GAP_PX = 12.0
"""Least gap between two facts."""
ROW_GAP_PX = 8


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
    right-aligned. What does not fit on a line goes to the next one."""

    def __init__(self, *, spread: bool = True, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._facts: tuple[Fact, ...] = ()
        self._spread = spread
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def set_facts(self, facts: Sequence[Fact]) -> None:
        self._facts = tuple(facts)
        texts = (" ".join(p for p in (f.caption, f.figure, f.after, f.below) if p) for f in facts)
        self.setAccessibleName("; ".join(texts))
        self._set_height()
        self.update()

    def _width(self, fact: Fact) -> float:
        figure = paint.text_width(fact.figure, "title")
        after = 5 + paint.text_width(fact.after, "caption") if fact.after else 0
        words = max(
            paint.text_width(fact.caption, "caption"), paint.text_width(fact.below, "caption")
        )
        return max(words, figure + after)

    def _row_px(self) -> int:
        return 58 if any(fact.below for fact in self._facts) else 42

    def rows(self) -> list[tuple[Fact, ...]]:
        """Split the facts into lines that fit the width, with about as many facts on each."""
        count = max(1, len(self._facts))
        for lines in range(1, count + 1):
            each = -(-count // lines)
            starts = range(0, len(self._facts), each)
            rows = [self._facts[start : start + each] for start in starts]
            if all(self._needed(row) <= self.width() for row in rows):
                return rows
        return [(fact,) for fact in self._facts]

    def _needed(self, row: Sequence[Fact]) -> float:
        """Return the width in pixels of facts on one line."""
        if self._spread:
            return sum(self._width(fact) for fact in row) + GAP_PX * (len(row) - 1)
        return max((self._width(fact) for fact in row), default=0.0) * len(row)

    def _set_height(self) -> None:
        rows = max(1, len(self.rows()))
        wanted = rows * self._row_px() + (rows - 1) * ROW_GAP_PX
        if wanted != self.height() or self.minimumHeight() != wanted:
            self.setFixedHeight(wanted)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._set_height()

    def sizeHint(self) -> QSize:
        return QSize(round(sum(self._width(f) + 16 for f in self._facts)), self.minimumHeight())

    def minimumSizeHint(self) -> QSize:
        widest = max((self._width(fact) for fact in self._facts), default=0.0)
        return QSize(round(widest) + 1, self.minimumHeight())

    def paintEvent(self, event: QPaintEvent) -> None:
        rows = self.rows()
        columns = max((len(row) for row in rows), default=1)
        with paint.painting(self) as painter:
            for line, row in enumerate(rows):
                top = line * (self._row_px() + ROW_GAP_PX)
                painter.translate(0, top)
                self._paint_row(painter, row, columns if len(rows) > 1 else 0)
                painter.translate(0, -top)

    def _paint_row(self, painter: paint.QPainter, row: Sequence[Fact], columns: int) -> None:
        """Draw the facts of a line; `columns`: in equal columns, as where there are several lines
        (0: with equal gaps)."""
        widths = [self._width(fact) for fact in row]
        gap = max(GAP_PX, (self.width() - sum(widths)) / max(1, len(widths) - 1))
        x = 0.0
        for index, (fact, width) in enumerate(zip(row, widths, strict=True)):
            if columns or not self._spread:
                x = index * self.width() / (columns or len(widths))
            last = self._spread and not columns and index == len(widths) - 1 and index > 0
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
