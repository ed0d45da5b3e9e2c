"""Chips: short text in a 20 px box. A plain chip is informative; a filter chip can be removed."""

from PySide6.QtCore import QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QKeyEvent, QMouseEvent, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from studio.widgets.painting import paint
from studio.widgets.painting.focus import KeyboardFocus

# tone -> (text, fill, edge)
TONES: dict[str, tuple[str, str, str | None]] = {
    "neutral": ("muted", "chip", None),
    "accent": ("accent", "accent-soft", None),
    "good": ("good", "good-soft", None),
    "warn": ("warn", "warn-soft", None),
    "bad": ("bad", "bad-soft", None),
    "info": ("info", "info-soft", None),
    "judge": ("judge", "judge-soft", None),
    "human": ("human", "human-soft", None),
}


class Chip(QWidget):
    """Chip: `Chip("steady", "good", icon="check")`; monospace for names of settings."""

    def __init__(
        self,
        words: str = "",
        tone: str = "neutral",
        *,
        icon: str = "",
        mono: bool = False,
        height: int = 20,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self._words, self._tone, self._icon = words, tone, icon
        self._font = ("mono-small", 400) if mono else ("caption", 500)
        if height > 20:
            self._font = ("label", 500)
        self._height = height
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        self.set_state(words, tone, icon)

    def set_state(self, words: str, tone: str = "neutral", icon: str = "") -> None:
        """Set text, colour (`tone`) and icon name (empty: no icon) together."""
        if tone not in TONES:
            raise ValueError(f"chip tone is {tone!r}, expected one of {', '.join(TONES)}")
        self._words, self._tone, self._icon = words, tone, icon
        self.setAccessibleName(words)
        self.updateGeometry()
        self.update()

    def words(self) -> str:
        return self._words

    def _icon_px(self) -> int:
        return 14 if self._height > 20 else 12

    def _padding(self) -> int:
        return 8 if self._height > 20 else 7

    def _tail_width(self) -> float:
        return 0.0

    def _paint_tail(self, painter: paint.QPainter, x: float, tone: str) -> None:
        pass

    def _looks(self) -> tuple[str, str, str | None]:
        return TONES[self._tone]

    def sizeHint(self) -> QSize:
        width = paint.text_width(self._words, *self._font) + 2 * self._padding()
        if self._icon:
            width += self._icon_px() + 5
        return QSize(round(width + self._tail_width()) + 1, self._height)

    def minimumSizeHint(self) -> QSize:
        return self.sizeHint()

    def paintEvent(self, event: QPaintEvent) -> None:
        tone, fill, edge = self._looks()
        with paint.painting(self) as painter:
            radius = 6 if self._height > 20 else 4
            paint.box(painter, self.rect(), fill, edge, radius)
            x = float(self._padding())
            if self._icon:
                top = (self._height - self._icon_px()) / 2
                paint.icon(painter, QPointF(x, top), self._icon, tone, self._icon_px())
                x += self._icon_px() + 5
            room = QRectF(x, 0, self.width() - x - self._padding() + 2, self.height())
            x += paint.text(painter, room, self._words, tone, *self._font)
            self._paint_tail(painter, x, tone)


class FilterChip(KeyboardFocus, Chip):
    """Filter chip: active (accent) after a click, removable; its number is the count of results."""

    toggled = Signal(bool)
    removed = Signal()
    ring_radius = 4.0

    def __init__(
        self,
        words: str,
        amount: str = "",
        *,
        active: bool = False,
        icon: str = "",
        parent: QWidget | None = None,
    ) -> None:
        self._active = active
        self._amount = amount
        super().__init__(words, icon=icon, parent=parent)
        self.setAttribute(Qt.WidgetAttribute.WA_Hover)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.set_active(active)

    def set_active(self, active: bool) -> None:
        """Show the filter as active or inactive, without emitting."""
        self._active = active
        state = "on" if active else "off"
        self.setAccessibleName(f"Filter {self._words} {self._amount}, {state}".replace("  ", " "))
        self.updateGeometry()
        self.update()

    def _looks(self) -> tuple[str, str, str | None]:
        if self._active:
            return "accent", "accent-soft", "accent-line" if self.underMouse() else None
        return "muted", "hover" if self.underMouse() else "chip", None

    def _tail_width(self) -> float:
        tail = 17.0 if self._active else 0.0
        return tail + (6 + paint.text_width(self._amount, "caption", 500) if self._amount else 0)

    def _paint_tail(self, painter: paint.QPainter, x: float, tone: str) -> None:
        if self._amount:
            room = QRectF(x + 6, 0, 60, self.height())
            shade = tone if self._active else "text"
            paint.text(painter, room, self._amount, shade, "caption", 500)
        if self._active:
            paint.icon(painter, QPointF(self.width() - 18, self.height() / 2 - 6), "x", tone, 12)

    def _press(self, removing: bool) -> None:
        if self._active and removing:
            self.removed.emit()
            return
        self.set_active(not self._active)
        self.toggled.emit(self._active)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        if event.button() == Qt.MouseButton.LeftButton and self.rect().contains(event.pos()):
            self._press(removing=event.position().x() > self.width() - 20)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Space, Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self._press(removing=False)
        elif event.key() in (Qt.Key.Key_Delete, Qt.Key.Key_Backspace) and self._active:
            self._press(removing=True)
        else:
            super().keyPressEvent(event)
