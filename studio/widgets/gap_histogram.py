"""How far numbers lie apart: bars from 0, and the limit they are held against."""

from collections.abc import Sequence

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QPaintEvent, QPen
from PySide6.QtWidgets import QSizePolicy, QWidget

from studio import figures
from studio.theme import theme
from studio.widgets import paint

_BARS, _FOOT = 64, 20


class GapHistogram(QWidget):
    """`set_counts(edges, counts, limit)`: `counts[i]` values lie in [edges[i], edges[i + 1])."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._edges: tuple[float, ...] = ()
        self._counts: tuple[int, ...] = ()
        self._limit: float | None = None
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def set_counts(
        self, edges: Sequence[float], counts: Sequence[int], limit: float | None, words: str = ""
    ) -> None:
        """`words` describe it to who cannot see it."""
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
        color = theme().color
        last = max((n for n, count in enumerate(self._counts) if count), default=0)
        end = max(self._edges[last + 1], (self._limit or 0.0) * 1.05) or 1.0
        most = max(self._counts) or 1
        wide = self.width() - 1

        def place(value: float) -> float:
            return wide * min(1.0, value / end)

        with paint.painting(self) as painter:
            for n, count in enumerate(self._counts[: last + 1]):
                if count:
                    left, right = place(self._edges[n]), place(self._edges[n + 1])
                    high = max(2.0, (_BARS - 6) * count / most)
                    bar = QRectF(left + 0.5, _BARS - high, max(1.0, right - left - 1), high)
                    painter.fillRect(bar, color("plot-1"))
            painter.fillRect(QRectF(0, _BARS, wide, 1), color("border-strong"))
            for value, align in ((0.0, paint.LEFT), (end / 2, paint.CENTER), (end, paint.RIGHT)):
                x = place(value)
                left = {paint.LEFT: x, paint.CENTER: x - 40, paint.RIGHT: x - 80}[align]
                room = QRectF(left, _BARS + 3, 80, 16)
                paint.text(painter, room, _short(value), "faint", "caption", align=align)
            if self._limit is not None:
                x = place(self._limit)
                painter.setPen(QPen(color("bad"), 1.5, Qt.PenStyle.DashLine))
                painter.drawLine(QPointF(x, 0), QPointF(x, _BARS))
                words = QRectF(x - 126, 0, 120, 16)
                paint.text(
                    painter, words, f"limit {_short(self._limit)}", "bad", "caption",
                    align=paint.RIGHT,
                )  # fmt: skip


def _short(value: float) -> str:
    """0.02, 5e-5: as few signs as tell it."""
    if value == 0 or value >= 0.001:
        return figures.number(value, 3).rstrip("0").rstrip(".") or "0"
    return f"{value:.0e}".replace("e-0", "e-").replace("-", "\u2212")
