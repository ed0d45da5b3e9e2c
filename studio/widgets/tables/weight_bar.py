"""Weights of criteria: chips, and a stacked bar with draggable boundaries."""

from collections.abc import Sequence

from PySide6.QtCore import QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QKeyEvent, QMouseEvent, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from studio.widgets.painting import paint
from studio.widgets.painting.focus import KeyboardFocus

TONES = ("plot-2", "plot-3", "plot-8", "plot-6", "plot-1", "plot-4", "plot-5", "plot-7")
CHIP, GAP, BAR, GRIP = 26, 6, 8, 5


def tone_of(place: int) -> str:
    """Colour token of the criterion at an index."""
    return TONES[place % len(TONES)]


class WeightBar(KeyboardFocus, QWidget):
    """Weight bar: `set_weights(["Right", "Brief"], [0.75, 0.25])`; dragging a boundary, or arrow
    keys on it (Up and Down select one), emits `moved(boundary, share of all before it)`."""

    moved = Signal(int, float)
    chip_pressed = Signal(int)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._names: list[str] = []
        self._shares: list[float] = []
        self._grip = 0
        self._dragged = False
        self.setMouseTracking(True)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        policy = QSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
        policy.setHeightForWidth(True)
        self.setSizePolicy(policy)

    def set_weights(self, names: Sequence[str], shares: Sequence[float]) -> None:
        """Set the names of the criteria and their shares, which sum to 1."""
        self._names, self._shares = list(names), list(shares)
        self._grip = min(self._grip, max(0, len(names) - 2))
        text = ", ".join(f"{n} {s:.0%}" for n, s in zip(names, shares, strict=True))
        self.setAccessibleName(f"Weights: {text}")
        self.setVisible(bool(names))
        self.updateGeometry()
        self.update()

    def hasHeightForWidth(self) -> bool:
        return True

    def heightForWidth(self, width: int) -> int:
        rows = max((row for row, _ in self._chips(width)), default=0) + 1
        return rows * (CHIP + GAP) + GAP + BAR + 8

    def sizeHint(self) -> QSize:
        return QSize(320, self.heightForWidth(max(self.width(), 320)))

    def minimumSizeHint(self) -> QSize:
        return QSize(160, self.heightForWidth(max(self.width(), 160)))

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.setMinimumHeight(self.heightForWidth(self.width()))

    def _words(self, place: int) -> tuple[str, str]:
        return self._names[place], f"{self._shares[place]:.0%}"

    def _chips(self, width: float) -> list[tuple[int, QRectF]]:
        """Line number and rectangle of each chip, wrapped at a width."""
        boxes, row, x = [], 0, 0.0
        for place in range(len(self._names)):
            name, percent = self._words(place)
            wide = 22 + paint.text_width(name) + 10 + paint.text_width(percent, "mono-small") + 10
            wide = min(wide, width)
            if x and x + wide > width:
                row, x = row + 1, 0.0
            boxes.append((row, QRectF(x, row * (CHIP + GAP), wide, CHIP)))
            x += wide + GAP
        return boxes

    def _bar(self) -> QRectF:
        return QRectF(0, self.height() - BAR - 6, self.width(), BAR)

    def _boundaries(self) -> list[float]:
        bar, total, boundaries = self._bar(), 0.0, []
        for share in self._shares[:-1]:
            total += share
            boundaries.append(bar.left() + bar.width() * total)
        return boundaries

    def _at(self, x: float, y: float) -> int | None:
        if not self._bar().adjusted(0, -6, 0, 6).contains(QPointF(x, y)):
            return None
        near = [i for i, at in enumerate(self._boundaries()) if abs(at - x) <= GRIP]
        return near[0] if near else None

    def paintEvent(self, event: QPaintEvent) -> None:
        with paint.painting(self) as painter:
            for place, (_, box) in enumerate(self._chips(self.width())):
                paint.box(painter, box, None, "border-strong", 6)
                paint.box(painter, QRectF(box.left() + 8, box.top() + 9, 8, 8), tone_of(place))
                name, percent = self._words(place)
                wide = paint.text_width(percent, "mono-small")
                inner = box.adjusted(22, 0, -10, 0)
                paint.text(painter, inner.adjusted(0, 0, -wide - 8, 0), name)
                paint.text(painter, inner, percent, "text", "mono-small", 600, paint.RIGHT)
            bar, x = self._bar(), self._bar().left()
            for place, share in enumerate(self._shares):
                wide = bar.width() * share
                box = QRectF(x, bar.top(), max(1.0, wide - 2), bar.height())
                paint.box(painter, box, tone_of(place), None, 2)
                x += wide
            bounds = self._boundaries()
            if self.hasFocus() and bounds:
                at = bounds[self._grip]
                ring = QRectF(at - 6, bar.top() - 5, 10, bar.height() + 10)
                paint.focus_ring(painter, ring, 4)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        x, y = event.position().x(), event.position().y()
        if (boundary := self._at(x, y)) is not None:
            self._grip, self._dragged = boundary, True
            return
        for place, (_, box) in enumerate(self._chips(self.width())):
            if box.contains(event.position()):
                self.chip_pressed.emit(place)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        x, y = event.position().x(), event.position().y()
        over = self._dragged or self._at(x, y) is not None
        self.setCursor(Qt.CursorShape.SplitHCursor if over else Qt.CursorShape.ArrowCursor)
        if self._dragged:
            self.moved.emit(self._grip, min(1.0, max(0.0, x / max(1, self.width()))))

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        self._dragged = False

    def keyPressEvent(self, event: QKeyEvent) -> None:
        steps = {Qt.Key.Key_Left: -0.01, Qt.Key.Key_Right: 0.01}
        turns = {Qt.Key.Key_Up: -1, Qt.Key.Key_Down: 1}
        key, last = Qt.Key(event.key()), len(self._shares) - 2
        if last < 0:
            super().keyPressEvent(event)
        elif key in steps:
            self.moved.emit(self._grip, sum(self._shares[: self._grip + 1]) + steps[key])
        elif key in turns:
            self._grip = min(last, max(0, self._grip + turns[key]))
            self.update()
        else:
            super().keyPressEvent(event)
