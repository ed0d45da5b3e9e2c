"""Group dots: rewards of a group on an axis from 0 to 1, or wider if a reward is outside, with a
tick at the mean."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QSizePolicy, QWidget

from studio.text import formatting
from studio.theme.plain_tooltips import set_tip
from studio.theme.theme import theme
from studio.widgets.painting import paint

_R = 3.0


@dataclass(frozen=True)
class PlacedDot:
    """Dot on the axis: position (0 to 1), vertical offset (in dot rows), token."""

    x: float
    row: float
    token: str
    hollow: bool = False


def axis_of(rewards: Sequence[float | None]) -> tuple[float, float]:
    """Return the ends of the axis: 0 and 1, or the lowest and highest reward if they are
    outside."""
    scored = [r for r in rewards if r is not None and math.isfinite(r)]
    return min([0.0, *scored]), max([1.0, *scored])


def place_dots(rewards: Sequence[float | None], width: float) -> list[PlacedDot]:
    """Place one dot per reward on the axis of `axis_of`, without overlap (a swarm plot).

    Unscored rewards (None, nan) are hollow dots past the end of the axis. Equal rewards (no signal)
    are piled up."""
    scored = [r for r in rewards if r is not None and math.isfinite(r)]
    low, high = axis_of(rewards)
    span = high - low
    mean = sum(scored) / len(scored) if scored else 0.0
    flat = len(scored) > 1 and max(scored) - min(scored) < 1e-9
    placed: list[PlacedDot] = []
    for index, reward in enumerate(sorted(scored)):
        x = (reward - low) / span
        if flat:
            placed.append(PlacedDot(x, (index - (len(scored) - 1) / 2) * 0.62, "faint"))
            continue
        token = "plot-1" if reward >= mean else "plot-5"
        row = next(
            row
            for row in (0.0, -0.75, 0.75, -1.5, 1.5, 9.0)
            if row == 9.0 or not _covered(placed, x * width, row * 2 * _R, width)
        )
        placed.append(PlacedDot(x, 0.0 if row == 9.0 else row, token))
    unscored = len(rewards) - len(scored)
    placed += [PlacedDot(1.0, float(n), "warn", hollow=True) for n in range(unscored)]
    return placed


def _covered(placed: Sequence[PlacedDot], x: float, y: float, width: float) -> bool:
    return any(math.hypot(dot.x * width - x, dot.row * 2 * _R - y) < _R * 1.15 for dot in placed)


def paint_group_dots(
    painter: QPainter, rect: QRectF, rewards: Sequence[float | None], rings: Sequence[int] = ()
) -> None:
    """Draw one dot per reward (None: unscored), lowest on the left. `rings`: indices of dots to
    circle."""
    middle = round(rect.center().y()) + 0.0
    axis = rect.adjusted(_R, 0, -_R - (8 if any(r is None for r in rewards) else 0), 0)
    color = theme().color
    if not rewards:
        painter.setPen(QPen(color("border-strong"), 1.5, Qt.PenStyle.DotLine))
        painter.drawLine(QPointF(axis.left(), middle), QPointF(axis.right(), middle))
        return
    painter.fillRect(
        QRectF(rect.left(), middle - 0.5, axis.right() + _R - rect.left(), 1.5), color("border")
    )
    scored = [r for r in rewards if r is not None and math.isfinite(r)]
    flat = len(scored) > 1 and max(scored) - min(scored) < 1e-9
    low, high = axis_of(rewards)
    if scored and not flat:
        x = axis.left() + (sum(scored) / len(scored) - low) / (high - low) * axis.width()
        painter.fillRect(QRectF(x - 0.75, middle - 8, 1.5, 16), color("muted"))
    if low < 0:  # where 0 is, if it is not the left end
        zero = axis.left() - low / (high - low) * axis.width()
        painter.fillRect(QRectF(zero - 0.5, middle - 4, 1, 8), color("border-strong"))
    dots = place_dots(rewards, axis.width())
    squeeze = _squeeze(dots, rect.height())
    for dot in dots:
        at = QPointF(axis.left() + dot.x * axis.width(), middle + dot.row * 2 * _R * squeeze)
        if dot.hollow:
            at = QPointF(
                rect.right() - _R - 1, middle + (dot.row % 3 - 1) * 6 if dot.row else middle
            )
            painter.setPen(QPen(color(dot.token), 1.2))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawEllipse(at, _R - 0.6, _R - 0.6)
            continue
        painter.setPen(QPen(color("surface"), 0.8))
        painter.setBrush(color(dot.token))
        painter.drawEllipse(at, _R + 0.2, _R + 0.2)
    painter.setBrush(Qt.BrushStyle.NoBrush)
    painter.setPen(QPen(color("text"), 1.5))
    for index in rings:
        reward = rewards[index]
        if reward is not None:
            x = axis.left() + (reward - low) / (high - low) * axis.width()
            painter.drawEllipse(QPointF(x, middle), _R + 2.5, _R + 2.5)


def _squeeze(dots: Sequence[PlacedDot], height: float) -> float:
    """Factor by which a pile is compressed to fit its row."""
    tallest = max((abs(dot.row) for dot in dots if not dot.hollow), default=0.0) * 2 * _R
    room = max(0.0, height / 2 - _R - 1)
    return min(1.0, room / tallest) if tallest else 1.0


class GroupDots(QWidget):
    """Group dots: `set_rewards([0.1, 0.6, None])`; pending trajectories are omitted."""

    def __init__(self, name: str = "Rewards of the group", parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._name = name
        self._rewards: tuple[float | None, ...] = ()
        self._rings: tuple[int, ...] = ()
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)

    def set_rewards(self, rewards: Sequence[float | None], rings: Sequence[int] = ()) -> None:
        """Set the rewards so far (None: unscored), and the indices to circle."""
        self._rewards, self._rings = tuple(rewards), tuple(rings)
        scored = [r for r in rewards if r is not None]
        mean = formatting.number(sum(scored) / len(scored)) if scored else formatting.ABSENT
        unscored = len(rewards) - len(scored)
        count = formatting.plural(len(scored), "trajectory", "trajectories")
        text = f"{self._name}: {count}, mean {mean}"
        text += f", {unscored} unscored" if unscored else ""
        low, high = axis_of(rewards)
        if (low, high) != (0.0, 1.0):
            text += f"; axis from {formatting.number(low)} to {formatting.number(high)}"
        self.setAccessibleName(text)
        set_tip(self, text if scored else "")
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(120, 24)

    def minimumSizeHint(self) -> QSize:
        return QSize(48, 24)

    def paintEvent(self, event: QPaintEvent) -> None:
        with paint.painting(self) as painter:
            paint_group_dots(painter, QRectF(self.rect()), self._rewards, self._rings)
