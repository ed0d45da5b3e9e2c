"""Reward bar: one segment per reward part; the remainder stays visible."""

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QRectF, QSize
from PySide6.QtGui import QPainter, QPainterPath, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from studio.text import formatting
from studio.theme.plain_tooltips import set_tip
from studio.theme.theme import theme
from studio.widgets.painting import paint


@dataclass(frozen=True)
class Part:
    """Reward part: name, contribution, plot token."""

    name: str
    value: float
    token: str


def full_reward(parts: Sequence[Part]) -> float:
    """Return the reward of a full bar that has room for these parts: 1, or their sum if higher."""
    return max(1.0, sum(part.value for part in parts if part.value > 0))


def paint_parts(
    painter: QPainter,
    rect: QRectF,
    parts: Sequence[Part],
    whole: float | None = None,
    ground: str = "border",
) -> None:
    """Draw reward parts as segments of a bar. Negative parts shorten it. `whole` is the reward of a
    full bar (None: `full_reward` of the parts), `ground` the background colour."""
    whole = whole or full_reward(parts)
    clip = QPainterPath()
    clip.addRoundedRect(rect, 2, 2)
    painter.save()
    painter.setClipPath(clip)
    painter.fillRect(rect, theme().color(ground))
    x = rect.left()
    debt = -sum(part.value for part in parts if part.value < 0)
    for part in parts:
        if part.value <= 0:
            continue
        width = rect.width() * part.value / whole
        painter.fillRect(
            QRectF(x, rect.top(), max(0.0, width - 1), rect.height()), theme().color(part.token)
        )
        x += width
    if debt > 0:
        width = rect.width() * debt / whole
        taken = QRectF(
            max(rect.left(), x - width), rect.top(), min(width, x - rect.left()), rect.height()
        )
        painter.fillRect(taken, theme().color(ground))
        paint.hatch(painter, taken, "plot-5", 0)
    painter.restore()


class PartsBar(QWidget):
    """Reward bar: `set_parts([Part("judge", 0.56, "plot-2"), …])`."""

    def __init__(self, height: int = 6, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._parts: tuple[Part, ...] = ()
        self._whole: float | None = None
        self.setFixedHeight(height)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def set_parts(self, parts: Sequence[Part], whole: float | None = None) -> None:
        """Set the reward parts, left to right; `whole` is the reward of a full bar (None: 1, or the
        sum of the parts if higher)."""
        self._parts, self._whole = tuple(parts), whole
        text = ", ".join(f"{part.name} {formatting.number(part.value)}" for part in parts)
        self.setAccessibleName(f"Reward parts: {text or 'none'}")
        set_tip(self, text)
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(160, self.height())

    def paintEvent(self, event: QPaintEvent) -> None:
        with paint.painting(self) as painter:
            paint_parts(painter, QRectF(self.rect()), self._parts, self._whole)
