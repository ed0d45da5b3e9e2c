"""Sample project on the Home page: drawing in theme tokens, name, measured time with its hardware,
one line."""

from PySide6.QtCore import QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QMouseEvent, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from studio.runtime.paths import resource
from studio.theme.theme import theme
from studio.widgets.painting import paint
from studio.widgets.painting.focus import Pressable

_DRAWING = QSize(280, 120)
_PLAIN = "own-agent"


class SampleCard(Pressable, QWidget):
    """Sample: `SampleCard("yes-no-maybe", "Yes, no, maybe", "4 min · CPU", "Learns to say …")`. A
    plain drawing is used if resources/icons/samples has none of that name. `badge` marks the
    recommended first sample."""

    chosen = Signal(str)
    ring_radius = 8.0

    def __init__(
        self,
        key: str,
        name: str,
        time: str,
        words: str,
        *,
        badge: str = "",
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self._key, self._name, self._time, self._words, self._badge = (
            key,
            name,
            time,
            words,
            badge,
        )
        has_drawing = resource("icons", "samples", f"{key}.svg").is_file()
        self._drawing = f"samples/{key if has_drawing else _PLAIN}"
        self.setAttribute(Qt.WidgetAttribute.WA_Hover)
        self.setFixedHeight(158)
        self.setMinimumWidth(240)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.setAccessibleName(f"Sample {name}, {time}. {words} Open a copy")

    def sizeHint(self) -> QSize:
        return QSize(372, 158)

    def paintEvent(self, event: QPaintEvent) -> None:
        lit = self.underMouse() or self.keyboard_focus
        with paint.painting(self) as painter:
            paint.box(painter, self.rect(), "surface", "border-strong" if lit else "border", 8)
            upper = QRectF(1, 1, self.width() - 2, 100)
            painter.fillRect(upper.adjusted(7, 0, -7, 0), theme().color("background"))
            paint.box(painter, upper.adjusted(0, 0, 0, 1), "background", None, 7)
            painter.fillRect(QRectF(1, 93, self.width() - 2, 8), theme().color("background"))
            painter.fillRect(QRectF(1, 101, self.width() - 2, 1), theme().color("border"))
            pixmap = theme().drawing(self._drawing, _DRAWING, self.devicePixelRatioF())
            painter.setClipRect(upper)
            painter.drawPixmap(QPointF((self.width() - 280) / 2, -9), pixmap)
            painter.setClipping(False)
            line = QRectF(12, 108, self.width() - 24, 22)
            tail, tone = ("Open a copy", "accent") if lit else (self._time, "muted")
            used = paint.text(
                painter, line, tail, tone, "caption", 500 if lit else 400, paint.RIGHT
            )
            used = paint.text(
                painter, line.adjusted(0, 0, -used - 8, 0), self._name, "text", "body", 600
            )
            if self._badge:
                self._paint_badge(painter, 12 + used + 8)
            words = QRectF(12, 130, self.width() - 24, 18)
            paint.text(painter, words, self._words, "muted", "label", 400)

    def _paint_badge(self, painter: paint.QPainter, x: float) -> None:
        box = QRectF(x, 110, paint.text_width(self._badge, "caption", 500) + 12, 18)
        paint.box(painter, box, "accent-soft", None, 4)
        paint.text(painter, box, self._badge, "accent", "caption", 500, paint.CENTER, elide=False)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        if event.button() == Qt.MouseButton.LeftButton and self.rect().contains(event.pos()):
            self.chosen.emit(self._key)

    def press(self) -> None:
        self.chosen.emit(self._key)
