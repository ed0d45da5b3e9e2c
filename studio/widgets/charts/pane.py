"""Pane of a chart: grid, series, and an overlay for limits, events and the crosshair. The data
layer is cached as a pixmap: moving the crosshair redraws only the overlay."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyqtgraph as pg  # type: ignore[import-untyped]
from PySide6.QtCore import QLineF, QPointF, QRectF
from PySide6.QtGui import QFontMetricsF, QPainter, QPen
from PySide6.QtWidgets import QGraphicsItem, QStyleOptionGraphicsItem, QWidget

from studio.text import formatting
from studio.theme.theme import theme
from studio.widgets.charts import ticks as axis
from studio.widgets.charts.link import ChartLink
from studio.widgets.charts.marks import Plot, draw, draw_ghost
from studio.widgets.charts.series import BandSeries, BarSeries, LineSeries, Series
from studio.widgets.painting import paint

LEFT, RIGHT, TOP, BOTTOM = 40.0, 12.0, 6.0, 20.0
_ORDER = (BandSeries, BarSeries, LineSeries)


@dataclass(frozen=True)
class Limit:
    """Dashed limit line with its label at the right end: "limit 512"."""

    value: float
    words: str
    token: str = "plot-5"
    left: bool = False


@dataclass(frozen=True)
class EventTag:
    """Event at a step; its tone encodes the cause (judge, human, accent, warn)."""

    step: int
    words: str
    tone: str = "judge"


class Pane(pg.GraphicsWidget):
    """Series with one vertical axis. A card has one pane or two."""

    def __init__(self, link: ChartLink, title: str = "", x_labels: bool = True) -> None:
        super().__init__()
        self.link = link
        self.title = title
        self.x_labels = x_labels
        self.series: list[Series] = []
        self.limits: tuple[Limit, ...] = ()
        self.events: tuple[EventTag, ...] = ()
        self.selection: tuple[float, float] | None = None
        self.unit = ""
        self.left = LEFT
        self.empty_words = ""
        self._y_fixed: tuple[float | None, float | None] = (None, None)
        self._y_zero = True
        self._log = False
        self.view = pg.ViewBox(parent=self, enableMouse=False, enableMenu=False, defaultPadding=0)
        self._data = _Layer(self, self._paint_data)
        self._overlay = _Layer(self, self._paint_overlay)
        self.set_cached(True)
        self._overlay.setZValue(10)

    @property
    def is_log(self) -> bool:
        return self._log

    def set_log(self, log: bool) -> None:
        """Make the vertical axis logarithmic, or linear again."""
        self._log = log
        self.refresh()

    def set_cached(self, cached: bool) -> None:
        """Draw the data from a cached pixmap, or directly (False), so that an exported drawing has
        lines."""
        mode = QGraphicsItem.CacheMode
        self._data.setCacheMode(mode.DeviceCoordinateCache if cached else mode.NoCache)

    def set_y(
        self,
        low: float | None,
        high: float | None,
        *,
        zero: bool = True,
        unit: str = "",
        log: bool = False,
    ) -> None:
        """Set the ends of the vertical axis (None: automatic, including 0 if `zero`) and its unit;
        `log` makes it logarithmic."""
        self._y_fixed, self._y_zero, self.unit, self._log = (low, high), zero, unit, log
        self.refresh()

    def last_x(self) -> float:
        """End of the data on the x axis; nan without data."""
        ends = [float(self.link.to_x(s.steps[-1:])[0]) for s in self.series if len(s.steps)]
        return max(ends) if ends else math.nan

    def has_data(self) -> bool:
        """Whether any series has a point."""
        return any(len(series.steps) for series in self.series)

    def refresh(self) -> None:
        """Recompute the axis and redraw curves and overlay, after a change of data or theme."""
        low, high = self._y_range()
        self.view.setYRange(low, high, padding=0)
        self._data.update()
        self._overlay.update()

    def refresh_overlay(self) -> None:
        """Redraw the overlay only, after the crosshair or the selection moved."""
        self._overlay.update()

    def plot(self) -> Plot:
        """Current plot area and ranges."""
        (x0, x1), (y0, y1) = self.view.viewRange()
        rect = self.rect()
        bottom = BOTTOM if self.x_labels else 8.0
        area = rect.adjusted(self.left, TOP + (18 if self.title else 0), -RIGHT, -bottom)
        return Plot(area, x0, x1, y0, y1, self._log)

    def steps(self) -> np.ndarray:
        """Steps of all series, ascending."""
        arrays = [series.steps for series in self.series if len(series.steps)]
        return np.unique(np.concatenate(arrays)) if arrays else np.zeros(0)

    def _most_ticks(self) -> int:
        return max(2, min(6, int(self.rect().height() / 42) + 1))

    def _y_range(self) -> tuple[float, float]:
        if self._log:
            drawn = [s.values for s in self.series if isinstance(s, LineSeries)]
            limits = [limit.value for limit in self.limits if self.has_data()]
            low, high = axis.powers(np.concatenate([*drawn, np.array(limits)]))
            crowded = any(math.log10(limit) > high - 0.15 * (high - low) for limit in limits)
            return low, high + 0.15 * (high - low) * crowded
        extents = [series.y_extent() for series in self.series]
        extents += [(limit.value, limit.value) for limit in self.limits if self.has_data()]
        headroom = max((limit.value for limit in self.limits if self.has_data()), default=-math.inf)
        lows = [low for low, _ in extents if math.isfinite(low)]
        highs = [high for _, high in extents if math.isfinite(high)]
        low, high = (min(lows), max(highs)) if lows and highs else (0.0, 1.0)
        if headroom >= high:  # the label of a limit is above its line
            high += (headroom - low) * 0.15
        low, high = axis.y_extent(low, high, self._y_zero, self._most_ticks())
        fixed_low, fixed_high = self._y_fixed
        low = low if fixed_low is None else fixed_low
        high = high if fixed_high is None else fixed_high
        return low, high if high > low else low + 1.0

    def _paint_data(self, painter: QPainter) -> None:
        plot = self.plot()
        self._paint_grid(painter, plot)
        if not self.has_data():
            self._paint_empty(painter, plot.area)
            return
        painter.save()
        painter.setClipRect(plot.area.adjusted(-7, -6, 7, 3))
        for kind in _ORDER[:2]:
            for series in self.series:
                if isinstance(series, kind):
                    draw(painter, plot, series, self.link)
        for series in self.series:
            if isinstance(series, LineSeries):
                draw_ghost(painter, plot, series, self.link)
        for series in self.series:
            if isinstance(series, LineSeries):
                draw(painter, plot, series, self.link)
        self._paint_events(painter, plot)
        for series in self.series:
            if not isinstance(series, _ORDER):
                draw(painter, plot, series, self.link)
        painter.restore()
        self._paint_limits(painter, plot)

    def _paint_grid(self, painter: QPainter, plot: Plot) -> None:
        for value, words in self._labels(plot):
            y = round(plot.y(value))
            painter.fillRect(
                QRectF(plot.area.left(), y, plot.area.width(), 1), theme().color("grid")
            )
            if not self.has_data():
                continue
            room = QRectF(0, y - 8, self.left - 6, 16)
            paint.text(painter, room, words, "faint", "caption", align=paint.RIGHT, elide=False)
        if self.title:
            room = QRectF(plot.area.left(), 2, plot.area.width(), 16)
            paint.text(painter, room, self.title, "muted", "caption", align=paint.RIGHT)
        if self.x_labels and self.has_data():
            self._paint_x(painter, plot)

    def _labels(self, plot: Plot) -> list[tuple[float, str]]:
        most = self._most_ticks()
        if self._log:
            powers = axis.power_ticks(plot.y0, plot.y1, most)
            return [(value, formatting.significant(value, 1)) for value in powers]
        values = axis.ticks(plot.y0, plot.y1, most)
        step = values[1] - values[0] if len(values) > 1 else 1.0
        return [(value, axis.label(value, step, self.unit)) for value in values]

    def label_room(self) -> float:
        """Width of the labels of the vertical axis, in pixels."""
        labels = self._labels(self.plot()) if self.has_data() else []
        return max((paint.text_width(w, "caption") + 10 for _, w in labels), default=LEFT)

    def _paint_x(self, painter: QPainter, plot: Plot) -> None:
        most = max(2, int(plot.area.width() / 62))
        for value in axis.ticks(plot.x0, plot.x1, most):
            if self.link.kind == "step" and value != int(value):
                continue
            x = plot.x(value)
            room = QRectF(x - 40, plot.area.bottom() + 4, 80, 16)
            words = axis.x_label(value, self.link.kind)
            paint.text(painter, room, words, "faint", "caption", align=paint.CENTER, elide=False)

    def _paint_limits(self, painter: QPainter, plot: Plot) -> None:
        for limit in self.limits:
            y = round(plot.y(limit.value)) + 0.5
            pen = QPen(theme().color(limit.token), 1.2)
            pen.setDashPattern([4, 3])
            painter.setPen(pen)
            painter.drawLine(QLineF(plot.area.left(), y, plot.area.right(), y))
            room = QRectF(plot.area.left() + 8, y - 17, plot.area.width() - 8, 16)
            align = paint.LEFT if limit.left else paint.RIGHT
            paint.text(painter, room, limit.words, "muted", "caption", align=align)

    def _paint_events(self, painter: QPainter, plot: Plot) -> None:
        font = theme().font("caption", 500)
        for tag in self.events:
            x = round(plot.x(float(self.link.to_x(np.array([float(tag.step)]))[0])))
            if not plot.area.left() <= x <= plot.area.right():
                continue
            painter.fillRect(
                QRectF(x, plot.area.top(), 1, plot.area.height()), theme().color(tag.tone, 0.5)
            )
            width = QFontMetricsF(font).horizontalAdvance(tag.words) + 10
            left = min(max(plot.area.left(), x - width / 2), plot.area.right() - width)
            box = QRectF(round(left), plot.area.top() + 1, round(width), 16)
            paint.box(painter, box, f"{tag.tone}-soft", None, 4)
            paint.text(painter, box, tag.words, tag.tone, "caption", 500, paint.CENTER, elide=False)

    def _paint_empty(self, painter: QPainter, area: QRectF) -> None:
        """Draw the grid and the text of an empty chart without overlap."""
        room = QRectF(0, 0, paint.text_width(self.empty_words, "label") + 16, 18)
        room.moveCenter(area.center())
        if self.empty_words:
            painter.fillRect(room, theme().color("surface"))
        paint.text(painter, area, self.empty_words, "muted", "label", 400, paint.CENTER)

    def _paint_overlay(self, painter: QPainter) -> None:
        plot = self.plot()
        if self.selection is not None:
            left, right = sorted(plot.x(value) for value in self.selection)
            chosen = QRectF(left, plot.area.top(), right - left, plot.area.height())
            painter.fillRect(chosen.intersected(plot.area), theme().color("plot-1", 0.16))
        step = self.link.crosshair
        if step is None or not self.has_data():
            return
        place = float(self.link.to_x(np.array([float(step)]))[0])
        if not plot.x0 <= place <= plot.x1:
            return
        x = round(plot.x(place)) + 0.5
        pen = QPen(theme().color("muted"), 1)
        pen.setDashPattern([3, 3])
        painter.setPen(pen)
        painter.drawLine(QLineF(x, plot.area.top(), x, plot.area.bottom()))
        self._paint_hover_dots(painter, plot, step, x)

    def _paint_hover_dots(self, painter: QPainter, plot: Plot, step: int, x: float) -> None:
        for series in self.series:
            if not isinstance(series, LineSeries):
                continue
            index = int(np.searchsorted(series.steps, step))
            if index < len(series.steps) and series.steps[index] == step:
                value = float(series.smoothed(self.link.smoothing)[index])
                if math.isfinite(value):
                    painter.setPen(QPen(theme().color("surface"), 1.5))
                    painter.setBrush(theme().color(series.token))
                    painter.drawEllipse(QPointF(x, plot.y(value)), 4, 4)

    def resizeEvent(self, event: object) -> None:
        bounds = self.rect()
        self._data.set_bounds(bounds)
        self._overlay.set_bounds(bounds)
        self.view.setGeometry(self.plot().area)
        self.refresh()


class _Layer(pg.GraphicsObject):
    """Graphics item of the pane's size that paints through a callback."""

    def __init__(self, pane: Pane, callback: Callable[[QPainter], None]) -> None:
        super().__init__(pane)
        self._callback = callback
        self._bounds = QRectF()

    def set_bounds(self, bounds: QRectF) -> None:
        self.prepareGeometryChange()
        self._bounds = QRectF(bounds)

    def boundingRect(self) -> QRectF:
        return self._bounds

    def paint(
        self, painter: QPainter, option: QStyleOptionGraphicsItem, widget: QWidget | None = None
    ) -> None:
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setRenderHint(QPainter.RenderHint.TextAntialiasing)
        self._callback(painter)


def series_in(panes: Sequence[Pane]) -> list[Series]:
    return [series for pane in panes for series in pane.series]
