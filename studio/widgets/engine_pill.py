"""The engine pill: a dot and where the work is done.

Click for latency, version, memory, reconnect.
"""

from PySide6.QtCore import QEvent, QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QEnterEvent, QKeyEvent, QPaintEvent
from PySide6.QtWidgets import QAbstractButton, QSizePolicy, QWidget

from studio.theme import theme
from studio.widgets import paint
from studio.widgets.focus import KeyboardFocus

_DOTS = {"connected": "good", "reconnecting": "warn", "gone": "bad", "none": "ghost"}
_SAID = {
    "connected": "connected",
    "reconnecting": "reconnecting",
    "gone": "not reachable",
    "none": "no engine",
}


class EnginePill(KeyboardFocus, QAbstractButton):
    """`set_engine("gpu-box · H200", "connected")`; states connected, reconnecting, gone, none."""

    ring_radius = 12.0

    def __init__(
        self,
        words: str = "No engine",
        state: str = "none",
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self._state = state
        self._hovered = False
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        self.set_engine(words, state)

    def set_engine(self, words: str, state: str) -> None:
        """Change what it says and the dot."""
        self._state = state
        self.setText(words)
        self.setAccessibleName(f"Engine {words}, {_SAID[state]}")
        self.setToolTip(_SAID[state])
        self.updateGeometry()
        self.update()

    def state(self) -> str:
        """The state the dot shows."""
        return self._state

    def sizeHint(self) -> QSize:
        return QSize(round(paint.text_width(self.text(), "label", 400)) + 34, 24)

    def minimumSizeHint(self) -> QSize:
        return QSize(60, 24)

    def paintEvent(self, event: QPaintEvent) -> None:
        with paint.painting(self) as painter:
            lit = self._hovered or self.isDown()
            paint.box(
                painter,
                self.rect(),
                "hover" if lit else "surface",
                "border-strong" if lit else "border",
                12,
            )
            self._paint_dot(painter)
            room = QRectF(22, 0, self.width() - 32, self.height())
            paint.text(painter, room, self.text(), "muted", "label", 400)

    def _paint_dot(self, painter: paint.QPainter) -> None:
        color = theme().color(_DOTS[self._state])
        if self._state in ("connected", "reconnecting"):
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(color)
        else:  # a ring, not a disc: shape says it too
            painter.setPen(paint.QPen(color, 1.5))
            painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.drawEllipse(QPointF(13, self.height() / 2), 4, 4)

    def enterEvent(self, event: QEnterEvent) -> None:
        self._hovered = True
        super().enterEvent(event)

    def leaveEvent(self, event: QEvent) -> None:
        self._hovered = False
        super().leaveEvent(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self.click()
        else:
            super().keyPressEvent(event)
