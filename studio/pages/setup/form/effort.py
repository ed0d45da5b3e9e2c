"""Effort slider: five presets of the number of steps, or "Custom"."""

from itertools import pairwise

from PySide6.QtCore import QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QKeyEvent, QMouseEvent, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from studio.theme.theme import theme
from studio.widgets.painting import paint
from studio.widgets.painting.focus import KeyboardFocus

STOPS = (("Taste", 5), ("Quick", 15), ("Standard", 60), ("Thorough", 150), ("Long", 400))
INSET = 14.0


def stop_of(steps: int) -> int | None:
    """Return the index of the preset with exactly this number of training steps; None if there is
    none ("Custom")."""
    return next((i for i, (_, count) in enumerate(STOPS) if count == steps), None)


class EffortSlider(KeyboardFocus, QWidget):
    """Effort slider: `set_steps(60)`; emits `steps_chosen(steps)` when the user moves it."""

    steps_chosen = Signal(int)
    ring_radius = 8.0

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._steps = STOPS[2][1]
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.setAccessibleName("Effort")

    def set_steps(self, steps: int) -> None:
        self._steps = steps
        stop = stop_of(steps)
        name = STOPS[stop][0] if stop is not None else "Custom"
        self.setAccessibleDescription(f"{name}, {steps} steps")
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(420, 46)

    def _x(self, place: float) -> float:
        return INSET + place * (self.width() - 2 * INSET) / (len(STOPS) - 1)

    def _place(self) -> float:
        """Return the knob position in units of presets; a custom number lies between two."""
        counts = [count for _, count in STOPS]
        if self._steps <= counts[0]:
            return 0.0
        for i, (low, high) in enumerate(pairwise(counts)):
            if self._steps <= high:
                return i + (self._steps - low) / (high - low)
        return len(STOPS) - 1.0

    def paintEvent(self, event: QPaintEvent) -> None:
        color, stop = theme().color, stop_of(self._steps)
        knob = QPointF(self._x(self._place()), 12)
        with paint.painting(self) as painter:
            painter.fillRect(QRectF(INSET, 10.5, self.width() - 2 * INSET, 3), color("border"))
            painter.fillRect(QRectF(INSET, 10.5, knob.x() - INSET, 3), color("accent"))
            painter.setPen(Qt.PenStyle.NoPen)
            for i, (name, _) in enumerate(STOPS):
                at = QPointF(self._x(i), 12)
                painter.setBrush(color("accent" if at.x() <= knob.x() else "border-strong"))
                painter.drawEllipse(at, 4, 4)
                label = QRectF(at.x() - 50, 26, 100, 16)
                if i == 0:
                    label.moveLeft(0)
                elif i == len(STOPS) - 1:
                    label.moveRight(self.width())
                align = paint.LEFT if i == 0 else paint.CENTER
                align = paint.RIGHT if i == len(STOPS) - 1 else align
                tone, weight = ("text", 600) if i == stop else ("muted", 400)
                paint.text(painter, label, name, tone, "caption", weight, align)
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(color("background"))
            painter.drawEllipse(knob, 9, 9)
            painter.setBrush(color("accent"))
            painter.drawEllipse(knob, 6, 6)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        share = (event.position().x() - INSET) / max(1.0, self.width() - 2 * INSET)
        self._choose(round(share * (len(STOPS) - 1)))

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        if event.buttons() & Qt.MouseButton.LeftButton:
            self.mousePressEvent(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        here = self._place()
        moves = {
            Qt.Key.Key_Right: int(here) + 1,
            Qt.Key.Key_Up: int(here) + 1,
            Qt.Key.Key_Left: -int(-here // 1) - 1,
            Qt.Key.Key_Down: -int(-here // 1) - 1,
            Qt.Key.Key_Home: 0,
            Qt.Key.Key_End: len(STOPS) - 1,
        }
        stop = moves.get(Qt.Key(event.key()))
        if stop is None:
            super().keyPressEvent(event)
        else:
            self._choose(stop)

    def _choose(self, stop: int) -> None:
        steps = STOPS[min(len(STOPS) - 1, max(0, stop))][1]
        if steps != self._steps:
            self.set_steps(steps)
            self.steps_chosen.emit(steps)
