"""Drawing of each kind of series, in pixels of the plot area."""

from dataclasses import dataclass

import numpy as np
import pyqtgraph as pg  # type: ignore[import-untyped]
from numpy.typing import NDArray
from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QImage, QPainter, QPainterPath, QPen, QPolygonF

from studio.theme.theme import theme
from studio.widgets.charts.envelope import envelope
from studio.widgets.charts.link import ChartLink
from studio.widgets.charts.series import BandSeries, BarSeries, LineSeries, Series, ValidationSeries

Array = NDArray[np.float64]
Indices = NDArray[np.intp]
GHOST_ALPHA = 0.42
BAND_ALPHA = 0.17
BAR_SHARE = 0.6
DIAMOND_PX = 4


@dataclass(frozen=True)
class Plot:
    """Plot area in pixels and the values at its edges."""

    area: QRectF
    x0: float
    x1: float
    y0: float
    y1: float
    log: bool = False
    """Whether the vertical axis is logarithmic; `y0` and `y1` are then exponents of ten."""

    def x(self, value: float) -> float:
        """Horizontal pixel of an x value."""
        return (
            self.area.left() + (value - self.x0) / ((self.x1 - self.x0) or 1.0) * self.area.width()
        )

    def y(self, value: float) -> float:
        """Vertical pixel of a y value."""
        return (
            self.area.bottom()
            - (float(self.level(np.array(value))) - self.y0)
            / ((self.y1 - self.y0) or 1.0)
            * self.area.height()
        )

    def xs(self, values: Array) -> Array:
        """Horizontal pixels of x values."""
        return self.area.left() + (values - self.x0) * (
            self.area.width() / ((self.x1 - self.x0) or 1.0)
        )

    def ys(self, values: Array) -> Array:
        """Vertical pixels of y values."""
        scale = self.area.height() / ((self.y1 - self.y0) or 1.0)
        return self.area.bottom() - (self.level(values) - self.y0) * scale

    def level(self, values: Array) -> Array:
        """Values on the scale of the vertical axis: log10 of them if it is logarithmic."""
        if not self.log:
            return values
        return np.log10(np.maximum(values, 10.0**self.y0))

    def value_x(self, pixel: float) -> float:
        """Value of x at a pixel."""
        return self.x0 + (pixel - self.area.left()) / (self.area.width() or 1.0) * (
            self.x1 - self.x0
        )


def draw(painter: QPainter, plot: Plot, series: Series, link: ChartLink) -> None:
    """Draw one series on a plot; `link` converts steps to x and has the smoothing weight."""
    if len(series.steps) == 0:
        return
    if isinstance(series, LineSeries):
        _draw_line(painter, plot, series, link)
    elif isinstance(series, BandSeries):
        _draw_band(painter, plot, series, link)
    elif isinstance(series, BarSeries):
        _draw_bars(painter, plot, series, link)
    elif isinstance(series, ValidationSeries):
        _draw_validation(painter, plot, series, link)


def draw_ghost(painter: QPainter, plot: Plot, series: LineSeries, link: ChartLink) -> None:
    """Draw the raw values of a smoothed line, faintly; nothing if smoothing is 0."""
    if not series.ghost or series.behind or link.smoothing <= 0 or len(series.steps) == 0:
        return
    xs, ys = _visible(plot, link.to_x(series.steps), series.values)
    color = theme().color(series.token, GHOST_ALPHA)
    if _is_dense(plot, ys):
        _draw_columns(painter, plot, xs, ys, color)
        return
    painter.setPen(QPen(color, 1))
    painter.setBrush(Qt.BrushStyle.NoBrush)
    painter.drawPath(_path(plot, xs, ys))


def _visible(plot: Plot, xs: Array, ys: Array) -> tuple[Array, Array]:
    """Visible points plus one on each side, reduced to the envelope if there are many."""
    first = max(0, int(np.searchsorted(xs, plot.x0)) - 1)
    last = min(len(xs), int(np.searchsorted(xs, plot.x1, side="right")) + 1)
    return envelope(xs[first:last], ys[first:last], max(1, int(plot.area.width())))


def _is_dense(plot: Plot, ys: Array) -> bool:
    """Whether a line would cover every pixel, so that columns give the same picture."""
    if len(ys) < 300:
        return False
    travel = float(np.nansum(np.abs(np.diff(plot.level(ys))))) / ((plot.y1 - plot.y0) or 1.0)
    return travel * plot.area.height() > 16 * plot.area.width()


def _draw_columns(painter: QPainter, plot: Plot, xs: Array, ys: Array, color: QColor) -> None:
    """Draw one column per pixel, from its minimum to its maximum; gaps stay empty. Drawn as one
    image, since blending thousands of thin strokes is slow."""
    width, height = int(plot.area.width()), int(plot.area.height())
    columns = np.floor(plot.xs(xs) - plot.area.left()).astype(int)
    inside = np.isfinite(ys) & (columns >= 0) & (columns < width)
    if width < 1 or height < 1 or not inside.any():
        return
    top, bottom = np.full(width, height), np.full(width, -1)
    pixels = np.clip(plot.ys(ys[inside]) - plot.area.top(), 0, height - 1).astype(int)
    np.minimum.at(top, columns[inside], pixels)
    np.maximum.at(bottom, columns[inside], pixels)
    rows = np.arange(height)[:, None]
    alpha = color.alpha()
    red, green, blue = (part * alpha // 255 for part in (color.red(), color.green(), color.blue()))
    ink = np.uint32(alpha << 24 | red << 16 | green << 8 | blue)
    bits = np.where((rows >= top) & (rows <= bottom), ink, np.uint32(0)).astype(np.uint32)
    format_ = QImage.Format.Format_ARGB32_Premultiplied
    image = QImage(bits.tobytes(), width, height, width * 4, format_)
    painter.drawImage(plot.area.topLeft(), image)


def _path(plot: Plot, xs: Array, ys: Array) -> QPainterPath:
    path: QPainterPath = pg.arrayToQPath(
        plot.xs(xs), plot.ys(ys), connect="finite", finiteCheck=True
    )
    return path


def _draw_line(painter: QPainter, plot: Plot, series: LineSeries, link: ChartLink) -> None:
    places = link.to_x(series.steps)
    xs, ys = _visible(plot, places, series.smoothed(link.smoothing))
    color = theme().color(series.token)
    if _is_dense(plot, ys):
        _draw_columns(painter, plot, xs, ys, color)
        return
    thin = len(xs) > 600
    pen = QPen(color, 1.0 if thin else series.width_px)
    pen.setJoinStyle(Qt.PenJoinStyle.BevelJoin if thin else Qt.PenJoinStyle.RoundJoin)
    pen.setCapStyle(Qt.PenCapStyle.FlatCap if thin else Qt.PenCapStyle.RoundCap)
    if series.dashed:
        pen.setCapStyle(Qt.PenCapStyle.FlatCap)
        pen.setDashPattern([6 / series.width_px, 3 / series.width_px])
    path = _path(plot, xs, ys)
    if series.filled:
        _fill_under(painter, plot, xs, ys, series.token)
    painter.setPen(pen)
    painter.setBrush(Qt.BrushStyle.NoBrush)
    painter.drawPath(path)
    _draw_lone_points(painter, plot, xs, ys, series)


def _fill_under(painter: QPainter, plot: Plot, xs: Array, ys: Array, token: str) -> None:
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(theme().color(token, BAND_ALPHA))
    for start, end in _runs(np.isfinite(ys)):
        px, py = plot.xs(xs[start:end]), plot.ys(ys[start:end])
        floor = plot.area.bottom()
        corners = [QPointF(px[0], floor), *map(QPointF, px, py), QPointF(px[-1], floor)]
        painter.drawPolygon(QPolygonF(corners))


def _draw_lone_points(
    painter: QPainter, plot: Plot, xs: Array, ys: Array, series: LineSeries
) -> None:
    """Draw points between two gaps as dots."""
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(theme().color(series.token))
    for start, end in _runs(np.isfinite(ys)):
        if end - start == 1:
            painter.drawEllipse(
                QPointF(plot.x(float(xs[start])), plot.y(float(ys[start]))), 2.5, 2.5
            )


def _runs(finite: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Start and exclusive end of every stretch of True."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], finite.astype(np.int8), [0]])))
    return [(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True)]


def _draw_band(painter: QPainter, plot: Plot, series: BandSeries, link: ChartLink) -> None:
    places = link.to_x(series.steps)
    many = max(1, int(plot.area.width() / 2))
    stride = max(1, len(places) // many)
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(theme().color(series.token, BAND_ALPHA))
    for start, end in _runs(np.isfinite(series.low) & np.isfinite(series.high)):
        low, high, xs = series.low[start:end], series.high[start:end], places[start:end]
        if stride > 1:  # keep the extremes of each stretch
            cuts = np.arange(0, len(xs), stride)
            low, high = np.minimum.reduceat(low, cuts), np.maximum.reduceat(high, cuts)
            xs = xs[cuts]
        px = plot.xs(xs)
        upper = list(map(QPointF, px, plot.ys(high)))
        lower = list(map(QPointF, px[::-1], plot.ys(low)[::-1]))
        painter.drawPolygon(QPolygonF(upper + lower))


def _draw_bars(painter: QPainter, plot: Plot, series: BarSeries, link: ChartLink) -> None:
    places = plot.xs(link.to_x(series.steps))
    slots = np.diff(places)
    slot = float(np.median(slots)) if len(slots) else 16.0
    width = max(1.0, min(28.0, slot * (BAR_SHARE if slot < 6 else 0.76)))
    seen = (places >= plot.area.left() - 28 - width) & (places <= plot.area.right() + 28 + width)
    parts = np.where(np.isfinite(series.stack) & (series.stack > 0), series.stack, 0.0)
    chosen = np.flatnonzero(seen)
    if slot < 1:
        places = np.floor(places) + plot.area.left() % 1 + 0.5
        chosen = _tallest(places, parts.sum(axis=0), chosen)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing, slot < 4)
    painter.setPen(Qt.PenStyle.NoPen)
    lefts, rights = places[chosen] - width / 2, places[chosen] + width / 2
    if slot >= 4:
        lefts, rights = np.rint(lefts), np.rint(rights)
    spans = np.stack([lefts, np.maximum(1.0, rights - lefts)])
    newest = chosen == len(series.steps) - 1 if series.newest_token else np.zeros(len(chosen), bool)
    tops, heights = _stacked(plot, parts[:, chosen], apart=slot >= 1)
    for top, height, drawn, token in zip(
        tops, heights, parts[:, chosen] > 0, series.tokens, strict=True
    ):
        for which, ink in ((drawn & ~newest, token), (drawn & newest, series.newest_token)):
            rects = np.stack([spans[0], top, spans[1], height], axis=1)[which].tolist()
            painter.setBrush(theme().color(ink or token))
            painter.drawRects([QRectF(*rect) for rect in rects])
    painter.setRenderHint(QPainter.RenderHint.Antialiasing, True)


def _tallest(places: Array, totals: Array, among: Indices) -> Indices:
    """Select the tallest of several bars in one pixel column, and the newest bar of all."""
    order = among[np.lexsort((totals[among], places[among]))]
    last_of_column = np.append(np.diff(places[order]) > 0, True)[: len(order)]
    return np.union1d(order[last_of_column], among[-1:])


def _stacked(plot: Plot, parts: Array, apart: bool) -> tuple[Array, Array]:
    """Tops and heights in pixels of stacked bars; `apart` leaves 1 px between them."""
    scale = plot.area.height() / ((plot.y1 - plot.y0) or 1.0)
    floor = plot.y(max(0.0, plot.y0))
    tops = floor - np.cumsum(parts, axis=0) * scale
    bottoms = np.vstack([np.full(parts.shape[1], floor), tops[:-1]])
    cut = (bottoms - tops > 3) & (apart and len(parts) > 1)
    return np.rint(tops), np.rint(bottoms) - np.rint(tops) - cut


def _draw_validation(
    painter: QPainter, plot: Plot, series: ValidationSeries, link: ChartLink
) -> None:
    color = theme().color
    pen = QPen(color(series.token), 1.5)
    for place, mean, low, high in _visible_diamonds(plot, series, link.to_x(series.steps)):
        x = round(plot.x(place)) + 0.0
        painter.setPen(pen)
        if np.isfinite(low) and np.isfinite(high):
            top, bottom = plot.y(high), plot.y(low)
            painter.drawLine(QPointF(x, top), QPointF(x, bottom))
            for y in (top, bottom):
                painter.drawLine(QPointF(x - 3, y), QPointF(x + 3, y))
        painter.setBrush(color("surface"))
        diamond(painter, QPointF(x, plot.y(mean)))


def _visible_diamonds(plot: Plot, series: ValidationSeries, places: Array) -> list[list[float]]:
    """Rows of position, mean, low, high. Where diamonds would overlap, only those with the lowest
    and the highest mean within a few pixels, and the newest."""
    rows = np.stack([places, series.means, series.low, series.high], axis=1)
    inside = np.abs(plot.xs(places) - plot.area.center().x()) < plot.area.width() / 2 + 8
    rows = rows[np.isfinite(series.means) & inside]
    if len(rows) > plot.area.width() / DIAMOND_PX:
        columns = np.floor(plot.xs(rows[:, 0]) / DIAMOND_PX)
        order = np.lexsort((rows[:, 1], columns))
        edge = np.diff(columns[order]) > 0
        ends = np.append(True, edge) | np.append(edge, True)
        rows = rows[np.union1d(order[ends], len(rows) - 1)]
    return rows.tolist()  # type: ignore[no-any-return]


def diamond(painter: QPainter, at: QPointF, half: float = 5.5) -> None:
    """Draw a validation result as a diamond around `at`, with the painter's pen and brush."""
    around = (QPointF(0, -half), QPointF(half, 0), QPointF(0, half), QPointF(-half, 0))
    painter.drawPolygon(QPolygonF([at + offset for offset in around]))
