"""Parallel coordinates: one axis per swept setting and one for the result; a line per trial."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from PySide6.QtCore import QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QMouseEvent, QPainter, QPainterPath, QPaintEvent, QPen
from PySide6.QtWidgets import QSizePolicy, QWidget

from engine.protocol.config.sweep import Range, SettingValue
from engine.protocol.records.sweeps import SweepTrial, SweepView
from studio.pages.runs.sweeps.rows import result_words
from studio.text.settings import setting_words, short_key
from studio.theme.theme import theme
from studio.widgets.painting import paint

TOP, BOTTOM, SIDE = 34, 18, 64
NEAR_PX = 12


@dataclass(frozen=True)
class Axis:
    """Axis: title, labelled places from 0 (bottom) to 1, and the place of each trial's value."""

    title: str
    labels: tuple[tuple[float, str], ...]
    places: dict[int, float]


def axes_of(view: SweepView) -> list[Axis]:
    """Return an axis per setting, then that of the result. A list of values is evenly spaced, a
    range linear or logarithmic."""
    axes = [_setting_axis(key, values, view.trials) for key, values in view.space.items()]
    scored = [(trial, trial.result.mean) for trial in view.trials if trial.result]
    if not scored:
        return [*axes, Axis("result", (), {})]
    low, high = min(mean for _, mean in scored), max(mean for _, mean in scored)
    span = (high - low) or 1.0
    ends = {mean: result_words(view, trial) for trial, mean in scored if mean in (low, high)}
    return [
        *axes,
        Axis(
            "win rate" if view.metric == "validation/win_rate" else "reward",
            tuple(((mean - low) / span, words) for mean, words in ends.items()),
            {trial.number: (mean - low) / span for trial, mean in scored},
        ),
    ]


def _setting_axis(
    key: str, values: tuple[SettingValue, ...] | Range, trials: Sequence[SweepTrial]
) -> Axis:
    known = {trial.number: trial.values[key] for trial in trials if key in trial.values}
    if isinstance(values, Range):
        low, high = float(values.low), float(values.high)
        scale = math.log if values.log else float
        span = scale(high) - scale(low)
        places = {n: (scale(float(value)) - scale(low)) / span for n, value in known.items()}
        ends = ((0.0, setting_words(low)), (1.0, setting_words(high)))
        return Axis(short_key(key), ends, places)
    last = max(1, len(values) - 1)
    order = {(type(value), value): place / last for place, value in enumerate(values)}
    labels = tuple((place / last, setting_words(value)) for place, value in enumerate(values))
    places = {n: order.get((type(value), value), 0.0) for n, value in known.items()}
    return Axis(short_key(key), labels, places)


class ParallelCoordinates(QWidget):
    """Parallel coordinates: `show_sweep(view)`; emits `trial_chosen(number)` for a clicked line."""

    trial_chosen = Signal(int)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._axes: list[Axis] = []
        self._best: int | None = None
        self._hovered = self._chosen = 0
        self.setMouseTracking(True)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)

    def show_sweep(self, view: SweepView) -> None:
        """Draw the trials of a sweep; the best one stands out."""
        self._axes, self._best = axes_of(view), view.best
        titles = ", ".join(axis.title for axis in self._axes)
        self.setAccessibleName(f"Parallel coordinates of {len(view.trials)} trials: {titles}")
        self.update()

    def choose(self, number: int) -> None:
        """Highlight the line of the trial with this number (from 1); 0: none."""
        self._chosen = number
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(480, 240)

    def minimumSizeHint(self) -> QSize:
        return QSize(240, 170)

    def _x(self, place: int) -> float:
        room = self.width() - 2 * SIDE
        return SIDE + room * place / max(1, len(self._axes) - 1)

    def _y(self, share: float) -> float:
        return self.height() - BOTTOM - share * (self.height() - TOP - BOTTOM)

    def _points(self, number: int) -> list[QPointF]:
        return [
            QPointF(self._x(place), self._y(axis.places[number]))
            for place, axis in enumerate(self._axes)
            if number in axis.places
        ]

    def _numbers(self) -> list[int]:
        return list(self._axes[0].places) if self._axes else []

    def _at(self, at: QPointF) -> int:
        """Return the number of the trial whose line is nearest to a point; 0 if none is near."""
        found = [(_distance(at, self._points(number)), number) for number in self._numbers()]
        nearest = min(found, default=(math.inf, 0))
        return nearest[1] if nearest[0] <= NEAR_PX else 0

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        hovered = self._at(event.position())
        if hovered != self._hovered:
            self._hovered = hovered
            self.update()

    def leaveEvent(self, event: object) -> None:
        self._hovered = 0
        self.update()

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if number := self._at(event.position()):
            self.trial_chosen.emit(number)

    def paintEvent(self, event: QPaintEvent) -> None:
        with paint.painting(self) as painter:
            self._paint_axes(painter)
            strong = [n for n in (self._best, self._chosen, self._hovered) if n]
            results = self._axes[-1].places if self._axes else {}
            for number in sorted(self._numbers(), key=lambda n: results.get(n, -1.0)):
                if number not in strong:
                    self._paint_line(painter, number, results.get(number))
            for number in dict.fromkeys(strong):
                self._paint_line(painter, number, results.get(number), strong=True)
            self._paint_labels(painter)

    def _paint_axes(self, painter: QPainter) -> None:
        for place, axis in enumerate(self._axes):
            x = self._x(place)
            line = QRectF(x, TOP, 1, self.height() - TOP - BOTTOM)
            painter.fillRect(line, theme().color("border-strong"))
            room = QRectF(x - SIDE, 4, 2 * SIDE, 18)
            paint.text(painter, room, axis.title, "text", "label", 600, paint.CENTER)

    def _paint_labels(self, painter: QPainter) -> None:
        """Draw the values beside the axes, over the lines: left, those of the result right."""
        for place, axis in enumerate(self._axes):
            is_last = place == len(self._axes) - 1
            for share, words in axis.labels:
                width = round(paint.text_width(words, "caption")) + 8
                left = self._x(place) + 6 if is_last else self._x(place) - 6 - width
                label = QRectF(left, self._y(share) - 8, width, 16)
                if 0 < place < len(self._axes) - 1:
                    paint.box(painter, label, "surface", None, 3)
                paint.text(painter, label, words, "muted", "caption", align=paint.CENTER)

    def _paint_line(
        self, painter: QPainter, number: int, result: float | None, strong: bool = False
    ) -> None:
        points = self._points(number)
        if len(points) < 2:
            return
        path = QPainterPath(points[0])
        for before, after in pairwise(points):
            middle = (before.x() + after.x()) / 2
            path.cubicTo(QPointF(middle, before.y()), QPointF(middle, after.y()), after)
        token = "plot-1" if result is not None else "faint"
        alpha = 1.0 if strong else 0.2 + 0.5 * (result or 0.0)
        pen = QPen(theme().color(token, alpha), 3.0 if strong else 1.6)
        pen.setCapStyle(Qt.PenCapStyle.RoundCap)
        painter.setPen(pen)
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.drawPath(path)


def _distance(at: QPointF, points: Sequence[QPointF]) -> float:
    """Return the distance in pixels of a point to a line through `points`."""
    best = math.inf
    for a, b in pairwise(points):
        dx, dy = b.x() - a.x(), b.y() - a.y()
        share = ((at.x() - a.x()) * dx + (at.y() - a.y()) * dy) / ((dx * dx + dy * dy) or 1.0)
        share = min(1.0, max(0.0, share))
        best = min(best, math.hypot(at.x() - a.x() - share * dx, at.y() - a.y() - share * dy))
    return best
