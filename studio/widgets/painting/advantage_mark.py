"""Advantage mark: arrow, sign and figure. Colour is never the only signal."""

import math

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QPainter, QPaintEvent, QPolygonF
from PySide6.QtWidgets import QSizePolicy, QWidget

from studio.text import formatting
from studio.theme.theme import theme
from studio.widgets.painting import paint


def paint_advantage(painter: QPainter, rect: QRectF, advantage: float | None) -> float:
    """Draw an advantage as arrow and number (None: a dash), left-aligned; return its width."""
    if advantage is None or not math.isfinite(advantage):
        return paint.text(painter, rect, formatting.ABSENT, "faint", "mono-small")
    words = formatting.signed(advantage)
    flat = words == formatting.number(0)
    up = advantage > 0
    tone = "faint" if flat else "accent" if up else "bad"
    x, y = rect.left(), rect.center().y()
    if not flat:
        tip, base = (y - 3, y + 2.5) if up else (y + 3, y - 2.5)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(theme().color(tone))
        arrow = [QPointF(x, base), QPointF(x + 7, base), QPointF(x + 3.5, tip)]
        painter.drawPolygon(QPolygonF(arrow))
        x += 11
    room = QRectF(x, rect.top(), rect.right() - x, rect.height())
    return x - rect.left() + paint.text(painter, room, words, tone, "mono", elide=False)


class AdvantageMark(QWidget):
    """Advantage of a trajectory: `set_advantage(0.24)`; None if it has none."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._advantage: float | None = None
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        self.set_advantage(None)

    def set_advantage(self, advantage: float | None) -> None:
        """Set the advantage (None: no figure)."""
        self._advantage = advantage
        self.setAccessibleName(f"Advantage {formatting.signed(advantage)}")
        self.updateGeometry()
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(round(14 + paint.text_width(formatting.signed(self._advantage), "mono")), 20)

    def paintEvent(self, event: QPaintEvent) -> None:
        with paint.painting(self) as painter:
            paint_advantage(painter, QRectF(self.rect()), self._advantage)
