"""Interval axis: values with their 95 % intervals on a shared scale, and a base to compare with."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QPainter, QPaintEvent, QPen, QPolygonF
from PySide6.QtWidgets import QSizePolicy, QWidget

from studio.text import formatting
from studio.theme.theme import theme
from studio.widgets.painting import paint

LEAST_LABELLED_PX = 160
"""Width of an axis that has room for a label at every quarter."""


@dataclass(frozen=True)
class Interval:
    """Value with the ends of its interval (None: a mean without an interval), and its style."""

    value: float
    low: float | None = None
    high: float | None = None
    token: str = "muted"
    mark: str = "diamond"  # diamond, circle
    words: str = ""


def paint_interval(
    painter: QPainter,
    axis: QRectF,
    item: Interval,
    low: float,
    high: float,
    base: float | None = None,
) -> None:
    """Draw an interval on an axis from `low` to `high`, with a dashed line at `base` (None: no
    line)."""
    span = (high - low) or 1.0

    def place(value: float) -> float:
        return axis.left() + axis.width() * min(1.0, max(0.0, (value - low) / span))

    color, y = theme().color(item.token), axis.center().y()
    if base is not None:
        painter.setPen(QPen(theme().color("border-strong"), 1, Qt.PenStyle.DashLine))
        painter.drawLine(QPointF(place(base), axis.top()), QPointF(place(base), axis.bottom()))
    if item.low is not None and item.high is not None:
        pen = QPen(color, 2)
        pen.setCapStyle(Qt.PenCapStyle.RoundCap)
        painter.setPen(pen)
        painter.drawLine(QPointF(place(item.low), y), QPointF(place(item.high), y))
    if not math.isfinite(item.value):
        return
    at = QPointF(place(item.value), y)
    painter.setPen(QPen(color, 1.5))
    painter.setBrush(theme().color("surface"))
    if item.low is None:
        painter.drawEllipse(at, 3, 3)
    elif item.mark == "circle":
        painter.drawEllipse(at, 4.2, 4.2)
    else:
        around = [QPointF(0, -5), QPointF(5, 0), QPointF(0, 5), QPointF(-5, 0)]
        painter.drawPolygon(QPolygonF([at + offset for offset in around]))


class IntervalAxis(QWidget):
    """Interval rows: `set_intervals([Interval(0.48, 0.38, 0.62, words="rubric 3"), …])`."""

    def __init__(
        self,
        low: float = 0.0,
        high: float = 1.0,
        *,
        words_px: int = 76,
        row_px: int = 30,
        labels: bool = True,
        strong: int = -1,
        parent: QWidget | None = None,
    ) -> None:
        """Create an axis from `low` to `high`; the row number `strong` is emphasised (−1: the
        last)."""
        super().__init__(parent)
        self._low, self._high, self._strong = low, high, strong
        self._words_px, self._row_px, self._labels = words_px, row_px, labels
        self._items: tuple[Interval, ...] = ()
        self._base: float | None = None
        self._zone: tuple[float, str] | None = None
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def set_intervals(self, items: Sequence[Interval], base: float | None = None) -> None:
        """Set one interval per row, and the value of a dashed line, `base` (None: no line)."""
        self._items, self._base = tuple(items), base
        self.setAccessibleName(
            "; ".join(
                f"{i.words} {formatting.number(i.value)}, "
                f"from {formatting.number(i.low)} to {formatting.number(i.high)}"
                for i in items
            )
        )
        self.updateGeometry()
        self.update()

    def set_zone(self, start: float | None, token: str = "human") -> None:
        """Shade the axis from `start` (None: no shading) to its end in the colour `token`."""
        self._zone = None if start is None else (start, token)
        self.update()

    def _axis(self) -> QRectF:
        bottom = 20 if self._labels else 0
        return QRectF(self._words_px, 0, self.width() - self._words_px - 10, self.height() - bottom)

    def sizeHint(self) -> QSize:
        return QSize(240, self._row_px * max(1, len(self._items)) + (20 if self._labels else 0))

    def minimumSizeHint(self) -> QSize:
        return QSize(self._words_px + 60, self.sizeHint().height())

    def paintEvent(self, event: QPaintEvent) -> None:
        axis = self._axis()
        span = (self._high - self._low) or 1.0
        with paint.painting(self) as painter:
            self._paint_ground(painter, axis, span)
            for index, item in enumerate(self._items):
                row = QRectF(axis.left(), index * self._row_px, axis.width(), self._row_px)
                paint_interval(painter, row, item, self._low, self._high)
                words = QRectF(0, row.top(), self._words_px - 8, self._row_px)
                strong = index == self._strong % len(self._items)
                tone, weight = ("text", 600) if strong else ("muted", 400)
                paint.text(painter, words, item.words, tone, "caption", weight, paint.RIGHT)

    def _paint_ground(self, painter: QPainter, axis: QRectF, span: float) -> None:
        color = theme().color
        if self._zone is not None:
            start, token = self._zone
            x = axis.left() + axis.width() * (start - self._low) / span
            painter.fillRect(QRectF(x, 0, axis.right() - x, axis.height()), color(f"{token}-soft"))
            painter.setPen(QPen(color(token), 1.5, Qt.PenStyle.DashLine))
            painter.drawLine(QPointF(x, 0), QPointF(x, axis.height()))
        for step in range(5):
            share = step / 4
            x = round(axis.left() + axis.width() * share)
            painter.fillRect(QRectF(x, 0, 1, axis.height()), color("grid"))
            if self._labels and (step % 2 == 0 or axis.width() >= LEAST_LABELLED_PX):
                label = f"{self._low + span * share:g}"
                room = QRectF(x - 24, axis.bottom() + 3, 48, 16)
                paint.text(painter, room, label, "faint", "caption", align=paint.CENTER)
        if self._base is not None:
            x = axis.left() + axis.width() * (self._base - self._low) / span
            painter.setPen(QPen(color("faint"), 1, Qt.PenStyle.DashLine))
            painter.drawLine(QPointF(x, 0), QPointF(x, axis.height()))
