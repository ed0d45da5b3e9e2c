"""Status dot of an engine, in the header, in menus and in rows; colour and shape tell the state."""

from PySide6.QtCore import QPointF, QSize, Qt
from PySide6.QtGui import QIcon, QPaintEvent, QPixmap
from PySide6.QtWidgets import QSizePolicy, QWidget

from studio.theme.theme import theme
from studio.widgets.painting import paint

DOTS = {
    "connected": ("good", True),
    "connecting": ("info", True),
    "asking": ("warn", True),
    "reconnecting": ("warn", True),
    "gone": ("bad", False),
    "none": ("ghost", False),
}
"""State → colour token, and whether it is a disc (True) or a ring, since colour is not enough."""
STATE_TEXTS = {
    "connected": "connected",
    "connecting": "connecting",
    "asking": "waiting for your input",
    "reconnecting": "reconnecting",
    "gone": "unreachable",
    "none": "no engine",
}
ICON_PX, SHARP = 16, 2


def paint_dot(painter: paint.QPainter, middle: QPointF, state: str) -> None:
    """Draw the dot of a connection state, a key of `DOTS`."""
    token, filled = DOTS[state]
    color = theme().color(token)
    painter.setPen(Qt.PenStyle.NoPen if filled else paint.QPen(color, 1.5))
    painter.setBrush(color if filled else Qt.BrushStyle.NoBrush)
    painter.drawEllipse(middle, 4, 4)


def dot_icon(state: str) -> QIcon:
    """Return the dot of a connection state (a key of `DOTS`) as an icon for menus."""
    pixmap = QPixmap(QSize(ICON_PX, ICON_PX) * SHARP)
    pixmap.setDevicePixelRatio(SHARP)
    pixmap.fill(Qt.GlobalColor.transparent)
    painter = paint.QPainter(pixmap)
    painter.setRenderHint(paint.QPainter.RenderHint.Antialiasing)
    paint_dot(painter, QPointF(ICON_PX / 2, ICON_PX / 2), state)
    painter.end()
    return QIcon(pixmap)


class Dot(QWidget):
    """Status dot: `set_state("connected")`; the text next to it says the same."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._state = "none"
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        self.setFixedSize(10, 20)

    def set_state(self, state: str) -> None:
        """Set the connection state, a key of `DOTS`."""
        self._state = state
        self.setAccessibleName(STATE_TEXTS[state])
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        with paint.painting(self) as painter:
            paint_dot(painter, QPointF(5, self.height() / 2), self._state)
