"""Slider of the smoothing of all charts of a page."""

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QKeyEvent, QMouseEvent, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from studio.theme.plain_tooltips import set_tip
from studio.theme.theme import theme
from studio.widgets.charts.link import ChartLink
from studio.widgets.painting import paint
from studio.widgets.painting.focus import KeyboardFocus

STEP, MOST = 0.05, 0.95
_WORDS, _RAIL = 68, 84


class SmoothingSlider(KeyboardFocus, QWidget):
    """Slider from 0 (raw values) to 0.95 that sets the smoothing of a ChartLink. Arrow keys move
    it by 0.05, Home and End to its ends."""

    ring_radius = 8.0

    def __init__(self, link: ChartLink, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._link = link
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        self.setAccessibleName("Smoothing of the charts")
        set_tip(self, "Weight of the exponential moving average; 0 shows raw values only")
        link.smoothing_changed.connect(self._changed)
        self._changed()

    def sizeHint(self) -> QSize:
        return QSize(_WORDS + _RAIL + 34, 26)

    def _changed(self) -> None:
        self.setAccessibleDescription(f"{self._link.smoothing:.2f}")
        self.update()

    def _set(self, weight: float) -> None:
        weight = round(min(MOST, max(0.0, weight)) / STEP) * STEP
        if abs(weight - self._link.smoothing) > STEP / 2:
            self._link.set_smoothing(weight)

    def _x(self) -> float:
        return _WORDS + 6 + (_RAIL - 12) * min(1.0, self._link.smoothing / MOST)

    def _set_at(self, x: float) -> None:
        self._set((x - _WORDS - 6) / (_RAIL - 12) * MOST)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        self._set_at(event.position().x())

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        if event.buttons() & Qt.MouseButton.LeftButton:
            self._set_at(event.position().x())

    def keyPressEvent(self, event: QKeyEvent) -> None:
        match event.key():
            case Qt.Key.Key_Left | Qt.Key.Key_Down:
                self._set(self._link.smoothing - STEP)
            case Qt.Key.Key_Right | Qt.Key.Key_Up:
                self._set(self._link.smoothing + STEP)
            case Qt.Key.Key_Home:
                self._set(0.0)
            case Qt.Key.Key_End:
                self._set(MOST)
            case _:
                super().keyPressEvent(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        middle, color = self.height() / 2, theme().color
        with paint.painting(self) as painter:
            words = QRectF(0, 0, _WORDS - 6, self.height())
            paint.text(painter, words, "Smoothing", "muted", "caption")
            rail = QRectF(_WORDS, middle - 1.5, _RAIL, 3)
            paint.box(painter, rail, "chip", None, 1.5)
            done = QRectF(rail.left(), rail.top(), self._x() - rail.left(), rail.height())
            paint.box(painter, done, "accent", None, 1.5)
            painter.setPen(color("border-strong"))
            painter.setBrush(color("raised"))
            painter.drawEllipse(QPointF(self._x(), middle), 6, 6)
            value = QRectF(_WORDS + _RAIL + 6, 0, 28, self.height())
            paint.text(painter, value, f"{self._link.smoothing:.2f}", "muted", "caption")
