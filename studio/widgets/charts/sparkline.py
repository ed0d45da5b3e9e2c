"""Sparkline scaled to its own range: the shape of a run in one row, with gaps."""

import math
from collections.abc import Sequence

import numpy as np
from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QPainter, QPainterPath, QPaintEvent, QPen
from PySide6.QtWidgets import QSizePolicy, QWidget

from studio.text import formatting
from studio.theme.theme import theme
from studio.widgets.charts.envelope import envelope
from studio.widgets.painting import paint


class Sparkline(QWidget):
    """Sparkline: `set_values(rewards, token="plot-1")`."""

    def __init__(self, name: str = "", parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._name = name
        self._values: tuple[float, ...] = ()
        self._token = "plot-1"
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)

    def set_values(self, values: Sequence[float], token: str = "plot-1") -> None:
        """Change the values and the colour token."""
        self._values, self._token = tuple(values), token
        ends = [v for v in self._values if math.isfinite(v)]
        text = (
            f"from {formatting.number(ends[0])} to {formatting.number(ends[-1])}"
            if ends
            else "no values yet"
        )
        self.setAccessibleName(f"{self._name} {text}".strip())
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(132, 34)

    def paintEvent(self, event: QPaintEvent) -> None:
        with paint.painting(self) as painter:
            paint_sparkline(
                painter, QRectF(self.rect()).adjusted(1, 1, -1, -1), self._values, self._token
            )


def paint_sparkline(
    painter: QPainter,
    rect: QRectF,
    values: Sequence[float],
    token: str,
    dot: bool = True,
    baseline: bool = True,
) -> None:
    """Draw a line of `values` in a theme colour, with a `dot` at its end and a `baseline` below."""
    if baseline:
        painter.fillRect(
            QRectF(rect.left(), rect.bottom(), rect.width(), 1), theme().color("border")
        )
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return
    low, high = min(finite), max(finite)
    span = (high - low) or 1.0
    area = rect.adjusted(2, 4, -5 if dot else -2, -5)
    across = max(1, len(values) - 1)
    path, joined, last = QPainterPath(), False, QPointF()
    xs, ys = np.arange(float(len(values))), np.array(values, dtype=np.float64)
    xs, ys = envelope(xs, ys, max(1, int(area.width())))
    for index, value in zip(xs.tolist(), ys.tolist(), strict=True):
        if not math.isfinite(value):
            joined = False
            continue
        last = QPointF(
            area.left() + area.width() * index / across,
            area.bottom() - area.height() * (value - low) / span,
        )
        path.lineTo(last) if joined else path.moveTo(last)
        joined = True
    pen = QPen(theme().color(token), 1.5)
    pen.setJoinStyle(Qt.PenJoinStyle.RoundJoin)
    pen.setCapStyle(Qt.PenCapStyle.RoundCap)
    painter.setPen(pen)
    painter.setBrush(Qt.BrushStyle.NoBrush)
    painter.drawPath(path)
    if dot:
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(theme().color(token))
        painter.drawEllipse(last, 2.5, 2.5)
