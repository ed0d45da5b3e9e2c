"""Legend of the step strip: reward ramp with its ends, skipped, validation, checkpoint."""

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QPaintEvent, QPolygonF
from PySide6.QtWidgets import QSizePolicy, QWidget

from studio.text import formatting
from studio.theme.theme import theme
from studio.theme.tokens import REWARD_STEPS
from studio.widgets.painting import paint

_CELL = 13


class StripLegend(QWidget):
    """Legend: `set_range(0.20, 0.75)` takes the 2nd and 98th percentile of the run."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._ramp = ""
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
        self.set_range(0.0, 1.0)

    def set_range(self, low: float, high: float) -> None:
        """Set the rewards at the ends of the colour ramp."""
        self._ramp = f"{formatting.number(low)} to {formatting.number(high)} reward"
        marks = "marks for skipped, validation and checkpoint steps"
        self.setAccessibleName(f"Legend: cell colour shows {self._ramp}; {marks}")
        self.updateGeometry()
        self.update()

    def _ramp_width(self) -> float:
        return REWARD_STEPS * _CELL + 7 + paint.text_width(self._ramp, "caption")

    def sizeHint(self) -> QSize:
        rest = sum(
            paint.text_width(w, "caption") + 27 for w in ("skipped", "validation", "checkpoint")
        )
        return QSize(round(self._ramp_width() + rest), 20)

    def minimumSizeHint(self) -> QSize:
        return QSize(round(self._ramp_width()), 20)

    def paintEvent(self, event: QPaintEvent) -> None:
        middle = self.height() / 2
        with paint.painting(self) as painter:
            for step in range(REWARD_STEPS):
                cell = QRectF(step * _CELL, middle - 4, _CELL - 1, 8)
                paint.box(painter, cell, f"reward-{step}", None, 1)
            x = float(REWARD_STEPS * _CELL + 7)
            room = QRectF(x, 0, 200, self.height())
            x += paint.text(painter, room, self._ramp, "muted", "caption", elide=False) + 13
            for words in ("skipped", "validation", "checkpoint"):
                width = paint.text_width(words, "caption")
                if x + 14 + width > self.width() + 1:
                    break
                self._paint_mark(painter, words, QPointF(x + 4, middle))
                room = QRectF(x + 14, 0, width + 4, self.height())
                paint.text(painter, room, words, "muted", "caption", elide=False)
                x += 14 + width + 13

    def _paint_mark(self, painter: paint.QPainter, words: str, at: QPointF) -> None:
        if words == "skipped":
            cell = QRectF(at.x() - 4.5, at.y() - 4.5, 9, 9)
            paint.box(painter, cell, None, "ghost", 2)
            painter.setPen(theme().color("faint"))
            painter.drawLine(cell.bottomLeft() + QPointF(2, -2), cell.topRight() + QPointF(-2, 2))
        elif words == "validation":
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(theme().color("text"))
            around = [QPointF(0, -3.5), QPointF(3.5, 0), QPointF(0, 3.5), QPointF(-3.5, 0)]
            painter.drawPolygon(QPolygonF([at + offset for offset in around]))
        else:
            paint.box(painter, QRectF(at.x() - 3, at.y() - 1.5, 6, 3), "accent", None, 1)
