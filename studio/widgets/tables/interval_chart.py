"""Intervals of several contestants by tag, on one axis; the first contestant is on top."""

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QRectF, QSize
from PySide6.QtGui import QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from studio.text import formatting
from studio.theme.theme import theme
from studio.widgets.painting import paint
from studio.widgets.tables.interval_axis import Interval, paint_interval

_WORDS, _LINE, _GAP, _FOOT = 96, 15, 10, 22
MARKS = 4


@dataclass(frozen=True)
class TagRow:
    """Tag, its number of scenarios, and one interval per contestant (None: unknown)."""

    words: str
    intervals: tuple[Interval | None, ...]
    strong: bool = False


class TagChart(QWidget):
    """Tag chart: `set_rows(rows, low, high)`."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._rows: tuple[TagRow, ...] = ()
        self._low, self._high = 0.0, 1.0
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def set_rows(self, rows: Sequence[TagRow], low: float = 0.0, high: float = 1.0) -> None:
        """Replace all rows; `low` and `high` are the values at the ends of the axis."""
        self._rows, self._low, self._high = tuple(rows), low, high
        self.setAccessibleName("; ".join(_row_words(row) for row in rows))
        self.updateGeometry()
        self.update()

    def _height(self, row: TagRow) -> int:
        return _LINE * len(row.intervals) + _GAP

    def sizeHint(self) -> QSize:
        return QSize(280, sum(map(self._height, self._rows)) + _FOOT)

    def minimumSizeHint(self) -> QSize:
        return QSize(_WORDS + 100, self.sizeHint().height())

    def paintEvent(self, event: QPaintEvent) -> None:
        left, right = float(_WORDS), float(self.width() - 12)
        bottom = float(self.height() - _FOOT)
        with paint.painting(self) as painter:
            for mark in range(MARKS + 1):
                x = round(left + (right - left) * mark / MARKS)
                painter.fillRect(QRectF(x, 0, 1, bottom), theme().color("grid"))
                if mark % 2 == 0:
                    value = self._low + (self._high - self._low) * mark / MARKS
                    room = QRectF(x - 24, bottom + 4, 48, 16)
                    paint.text(painter, room, f"{value:g}", "faint", "caption", align=paint.CENTER)
            top = 0.0
            for row in self._rows:
                height = self._height(row)
                words = QRectF(0, top, left - 12, height)
                tone, weight = ("text", 600) if row.strong else ("muted", 400)
                paint.text(painter, words, row.words, tone, "caption", weight, paint.RIGHT)
                for place, item in enumerate(row.intervals):
                    if item is not None:
                        y = top + _GAP / 2 + place * _LINE
                        line = QRectF(left, y, right - left, _LINE)
                        paint_interval(painter, line, item, self._low, self._high)
                top += height


def _row_words(row: TagRow) -> str:
    values = [
        f"{item.words} {formatting.number(item.value)} from {formatting.number(item.low)} to "
        f"{formatting.number(item.high)}"
        for item in row.intervals
        if item is not None
    ]
    return f"{row.words}: {', '.join(values) or 'no data'}"
