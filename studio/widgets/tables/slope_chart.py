"""Slope chart of one group: scores before on the left, after on the right. Only trajectories with a
changed rank are coloured and numbered."""

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QMouseEvent, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QSizePolicy, QWidget

from studio.theme.plain_tooltips import set_tip
from studio.theme.theme import theme
from studio.widgets.painting import paint
from studio.widgets.painting.focus import Pressable

WIDTH, HEIGHT = 176, 258
INSET, TOP, BOTTOM = 12, 56, 52
MOVED = 0.01
TIE = 1e-9


@dataclass(frozen=True)
class Slope:
    """Trajectory of the group: number (from 1), and score before and after (None: unscored)."""

    number: int
    before: float | None
    after: float | None

    @property
    def has_moved(self) -> bool:
        """Whether the score itself changed; a rank can also change because another one did."""
        scores = self.before is not None and self.after is not None
        return scores and abs(self.after - self.before) > MOVED  # type: ignore[operator]


@dataclass(frozen=True)
class Slopes:
    """Chart of a group: title, names of both sides, trajectories, result, agreement with labels."""

    title: str
    left: str
    right: str
    siblings: tuple[Slope, ...]
    words: str
    obeyed: str = ""
    obeyed_tone: str = "faint"


def ranks(values: Sequence[float | None]) -> list[float | None]:
    """Ranks from 1, the best; ties share the mean of their ranks; None stays None."""
    scores = [value for value in values if value is not None]

    def rank(value: float) -> float:
        better = sum(other > value + TIE for other in scores)
        equal = sum(abs(other - value) <= TIE for other in scores)
        return better + (equal + 1) / 2

    return [None if value is None else rank(value) for value in values]


def _moves(befores: Sequence[float | None], afters: Sequence[float | None]) -> list[float]:
    return [0 if a is None or b is None else b - a for b, a in zip(befores, afters, strict=True)]


class SlopeChart(Pressable, QWidget):
    """Slope chart: `set_slopes(slopes)`; a click or Enter opens the group."""

    opened = Signal()
    ring_radius = 4.0

    def __init__(self, slopes: Slopes, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._slopes = slopes
        self.setAccessibleName(f"{slopes.title}: {slopes.words}. {slopes.obeyed}")
        set_tip(self, "")
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def sizeHint(self) -> QSize:
        return QSize(WIDTH, HEIGHT)

    def minimumSizeHint(self) -> QSize:
        return QSize(WIDTH - 8, HEIGHT)

    def paintEvent(self, event: QPaintEvent) -> None:
        s = self._slopes
        with paint.painting(self) as painter:
            wide = self.width() - 2 * INSET
            paint.text(painter, QRectF(INSET, 4, wide, 20), s.title)
            paint.text(painter, QRectF(INSET, 24, wide / 2, 18), s.left, "muted", "caption")
            right = QRectF(INSET + wide / 2, 24, wide / 2, 18)
            paint.text(painter, right, s.right, "muted", "caption", align=paint.RIGHT)
            self._paint_lines(painter)
            foot = self.height() - BOTTOM + 6
            paint.text(painter, QRectF(INSET, foot, wide, 20), s.words)
            below = QRectF(INSET, foot + 20, wide, 18)
            paint.text(painter, below, s.obeyed, s.obeyed_tone, "caption")
            if self.hasFocus():
                paint.focus_ring(painter, self.rect(), 4)

    def _paint_lines(self, painter: QPainter) -> None:
        siblings = self._slopes.siblings
        left, right = INSET + 22.0, self.width() - INSET - 22.0
        top, bottom = float(TOP), float(self.height() - BOTTOM - 8)
        painter.setPen(QPen(theme().color("border"), 1))
        for x in (left, right):
            painter.drawLine(QPointF(x, top - 8), QPointF(x, bottom + 8))
        scores = [v for s in siblings for v in (s.before, s.after) if v is not None]
        low, high = (min(scores), max(scores)) if scores else (0.0, 1.0)
        span = max(high - low, 1e-9)

        def y(value: float) -> float:
            return bottom - (bottom - top) * (value - low) / span

        befores, afters = ranks([s.before for s in siblings]), ranks([s.after for s in siblings])
        moves = [
            move if sibling.has_moved else 0
            for sibling, move in zip(siblings, _moves(befores, afters), strict=True)
        ]
        taken: dict[str, list[float]] = {"left": [], "right": []}
        for sibling, move in sorted(
            zip(siblings, moves, strict=True), key=lambda pair: pair[1] != 0
        ):
            tone = "accent" if move > 0 else "bad" if move < 0 else "ghost"
            painter.setPen(QPen(theme().color(tone), 2 if move else 1))
            painter.setBrush(theme().color(tone if move else "faint"))
            ends = [(left, sibling.before), (right, sibling.after)]
            if sibling.before is not None and sibling.after is not None:
                painter.drawLine(QPointF(left, y(sibling.before)), QPointF(right, y(sibling.after)))
            for x, value in ends:
                if value is not None:
                    painter.setPen(Qt.PenStyle.NoPen)
                    painter.drawEllipse(QPointF(x, y(value)), 3, 3)
            if move:
                self._number(painter, sibling, y, left, right, taken)

    def _number(self, painter, sibling, y, left, right, taken) -> None:  # type: ignore[no-untyped-def]
        """Draw the trajectory number at both ends, unless it would overlap another one."""
        number = str(sibling.number)
        for side, x, value in (
            ("left", left - 20, sibling.before),
            ("right", right + 6, sibling.after),
        ):
            at = y(value)
            if all(abs(at - other) >= 11 for other in taken[side]):
                taken[side].append(at)
                align = paint.RIGHT if side == "left" else paint.LEFT
                box = QRectF(x, at - 9, 14, 18)
                paint.text(painter, box, number, "text", "caption", 600, align)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        if self.rect().contains(event.position().toPoint()):
            self.opened.emit()

    def press(self) -> None:
        self.opened.emit()
