"""Histogram of differences: bars from 0, and a limit."""

import bisect
import math
from collections.abc import Sequence

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QPaintEvent, QPen
from PySide6.QtWidgets import QSizePolicy, QWidget

from studio.text import formatting
from studio.theme.theme import theme
from studio.widgets.painting import paint

_BARS, _FOOT = 64, 20


class GapHistogram(QWidget):
    """Histogram: `set_counts(edges, counts, limit)`; `counts[i]` values lie in [edges[i], edges[i +
    1]). All bins are drawn equally wide, so geometrically growing edges give a logarithmic axis."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._edges: tuple[float, ...] = ()
        self._counts: tuple[int, ...] = ()
        self._limit: float | None = None
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def set_counts(
        self, edges: Sequence[float], counts: Sequence[int], limit: float | None, words: str = ""
    ) -> None:
        """Set the bins (`edges`: one more than `counts`) and the value of a limit line (None: no
        line); `words` is for screen readers."""
        self._edges, self._counts, self._limit = tuple(edges), tuple(counts), limit
        self.setAccessibleName(words)
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(280, _BARS + _FOOT)

    def minimumSizeHint(self) -> QSize:
        return QSize(160, _BARS + _FOOT)

    def paintEvent(self, event: QPaintEvent) -> None:
        if not self._counts or len(self._edges) != len(self._counts) + 1:
            return
        color, first, last = theme().color, *self._shown()
        most, wide = max(self._counts) or 1, (self.width() - 1) / (last - first)

        with paint.painting(self) as painter:
            for n in range(first, last):
                if count := self._counts[n]:
                    high = max(2.0, (_BARS - 6) * count / most)
                    bar = QRectF((n - first) * wide + 0.5, _BARS - high, wide - 1, high)
                    painter.fillRect(bar, color("plot-1"))
            painter.fillRect(QRectF(0, _BARS, self.width(), 1), color("border-strong"))
            middle = (first + last) // 2
            for n, align in ((first, paint.LEFT), (middle, paint.CENTER), (last, paint.RIGHT)):
                x = (n - first) * wide
                left = {paint.LEFT: x, paint.CENTER: x - 40, paint.RIGHT: x - 80}[align]
                room = QRectF(left, _BARS + 3, 80, 16)
                words = _short(self._edges[n])
                paint.text(painter, room, words, "faint", "caption", align=align)
            if self._limit is not None:
                x = (self._place(self._limit) - first) * wide
                painter.setPen(QPen(color("bad"), 1.5, Qt.PenStyle.DashLine))
                painter.drawLine(QPointF(x, 0), QPointF(x, _BARS))
                room = QRectF(x - 126, 0, 120, 16)
                words = f"limit {_short(self._limit)}"
                paint.text(painter, room, words, "bad", "caption", align=paint.RIGHT)

    def _shown(self) -> tuple[int, int]:
        """First bin to draw, and the bin after the last: all with values, and the limit."""
        filled = [n for n, count in enumerate(self._counts) if count]
        first, last = (filled[0], filled[-1] + 1) if filled else (0, 1)
        if self._limit is not None:
            last = max(last, math.ceil(self._place(self._limit)))
        return max(0, min(first, last - 6)), last

    def _place(self, value: float) -> float:
        """Position of a value on the x axis, in bins."""
        after = bisect.bisect_right(self._edges, value)
        if not 0 < after < len(self._edges):
            return float(min(after, len(self._counts)))
        low, high = self._edges[after - 1], self._edges[after]
        if low > 0 and high > 1.5 * low:  # geometric bins
            return after - 1 + math.log(value / low) / math.log(high / low)
        return after - 1 + (value - low) / (high - low)


def _short(value: float) -> str:
    """Format a number with as few characters as needed: 0.02, 5e-5."""
    if value == 0 or value >= 0.001:
        return formatting.number(value, 3).rstrip("0").rstrip(".") or "0"
    return f"{value:.0e}".replace("e-0", "e-").replace("-", "\u2212")
