"""Drawing area of a chart card: panes, pointer, keyboard and tooltip."""

import math
from collections.abc import Sequence

import numpy as np
import pyqtgraph as pg  # type: ignore[import-untyped]
from PySide6.QtCore import QEvent, QPoint, QRectF, Qt, QTimer, Signal
from PySide6.QtGui import (
    QFocusEvent,
    QKeyEvent,
    QMouseEvent,
    QPaintEvent,
    QResizeEvent,
    QShowEvent,
    QWheelEvent,
)
from PySide6.QtWidgets import QFrame, QWidget

from studio.widgets.charts.link import ChartLink
from studio.widgets.charts.pane import LEFT, Pane, series_in
from studio.widgets.charts.series import LineSeries, Series
from studio.widgets.charts.ticks import x_reach
from studio.widgets.text.phrase import Span
from studio.widgets.text.tooltip import Tip, TipText

_REDRAW_MS = 33  # at most 30 redraws a second
_TURN_MS = 1
_LEAST_DRAG_PX = 6


class ChartView(pg.GraphicsView):
    """View of one or two panes over one x axis. Emits step_clicked and range_selected."""

    step_clicked = Signal(int)
    range_selected = Signal(int, int)

    def __init__(
        self, link: ChartLink, panes: Sequence[Pane], parent: QWidget | None = None
    ) -> None:
        super().__init__(parent, background=None)
        self.link = link
        self.panes = tuple(panes)
        self._pressed_at: QPoint | None = None
        self._reach: float | None = None
        self._stale = self._recoloured = False
        self.click_words = "Click: show trajectories"
        """Effect of a click on a point, for the tooltip; empty if there is none."""
        self.colored = False
        """Whether names in the tooltip have the colours of their lines."""
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setMouseTracking(True)
        self.setViewportUpdateMode(pg.GraphicsView.ViewportUpdateMode.SmartViewportUpdate)
        for pane in self.panes:
            self.scene().addItem(pane)
        self._wait = QTimer(self)
        self._wait.setSingleShot(True)
        self._wait.timeout.connect(self._redraw_in_turn)
        link.crosshair_moved.connect(self._crosshair_moved)
        link.range_changed.connect(self._range_changed)
        link.axis_changed.connect(self.schedule)
        link.smoothing_changed.connect(self.schedule)

    def schedule(self) -> None:
        """Schedule a redraw after a change of data; further changes until then share it. A hidden
        chart redraws when it is shown."""
        self._stale = True
        self._full_width()
        if not self._wait.isActive():
            self._wait.start(_REDRAW_MS)

    def _redraw_in_turn(self) -> None:
        """Redraw if visible; otherwise wait for the next paint event."""
        if self.visibleRegion().isEmpty():
            return
        if self.link.take_turn():
            self.redraw()
        else:
            self._wait.start(_TURN_MS)

    def paintEvent(self, event: QPaintEvent) -> None:
        if self._stale and not self._wait.isActive():
            self._wait.start(0)
        super().paintEvent(event)

    def redraw(self) -> None:
        """Recompute ranges and redraw now."""
        self._wait.stop()
        self._stale = False
        x0, x1 = self.x_range()
        for pane in self.panes:
            pane.view.setXRange(x0, x1, padding=0)
            pane.refresh()
        left = max(LEFT, *(pane.label_room() for pane in self.panes))
        for pane in self.panes:
            if pane.left != left:
                pane.left = left
                pane.refresh()

    def x_range(self) -> tuple[float, float]:
        """Zoomed range if there is one, else from 0 to a round end after the data."""
        if self.link.zoom is not None:
            return self.link.zoom
        end = self._full_width()
        return (0.0, end) if end else (0.0, 48.0)

    def show_tip(self, step: int) -> None:
        """Show the tooltip next to the points of a step."""
        plot = self.panes[0].plot()
        x = plot.x(float(self.link.to_x(np.array([float(step)]))[0]))
        Tip.of(self).show_beside(
            self, QPoint(round(x), round(plot.area.center().y())), self.tip_for(step)
        )

    def tip_for(self, step: int) -> TipText:
        """Return the tooltip of a step: raw and smoothed values of all series."""
        lines = [
            [Span(f"{name} ", series.token if self.colored else "muted"), Span(words, "text", 600)]
            for series in series_in(self.panes)
            for name, words in self._values_at(series, step)
        ]
        return TipText(self.link.title_of(step), "", lines, self.click_words)

    def _values_at(self, series: Series, step: int) -> list[tuple[str, str]]:
        pairs = series.tooltip_at(step)
        if isinstance(series, LineSeries) and pairs:
            smoothed = series.smoothed_at(step, self.link.smoothing)
            if smoothed and smoothed != pairs[0][1]:
                return [(series.name, f"{pairs[0][1]}, smoothed {smoothed}")]
        return pairs

    def _step_at(self, x: float) -> int | None:
        arrays = [steps for pane in self.panes if len(steps := pane.steps())]
        if not arrays:
            return None
        steps = np.unique(np.concatenate(arrays))
        places = self.panes[0].plot().xs(self.link.to_x(steps))
        return int(steps[int(np.abs(places - x).argmin())])

    def _crosshair_moved(self, step: int | None) -> None:
        for pane in self.panes:
            pane.refresh_overlay()

    def _range_changed(self, wanted: object) -> None:
        self.schedule()

    def _walk(self, by: int) -> None:
        arrays = [steps for pane in self.panes if len(steps := pane.steps())]
        if not arrays:
            return
        steps = np.unique(np.concatenate(arrays))
        at = self.link.crosshair
        index = len(steps) - 1 if at is None else int(np.searchsorted(steps, at)) + by
        step = int(steps[max(0, min(len(steps) - 1, index))])
        self.link.set_hovered(step)
        self.show_tip(step)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if event is None or not hasattr(self, "panes"):
            return
        width, height = float(self.width()), float(self.height())
        if len(self.panes) == 1:
            self.panes[0].setGeometry(QRectF(0, 0, width, height))
        else:
            upper = round((height - 12) / 2)
            self.panes[0].setGeometry(QRectF(0, 0, width, upper))
            self.panes[1].setGeometry(QRectF(0, upper, width, height - upper))
        self.redraw()

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.PaletteChange and hasattr(self, "panes"):
            self._recoloured = True
            if self.isVisible():
                self._recolour()

    def showEvent(self, event: QShowEvent) -> None:
        if self._recoloured:
            self._recolour()
        super().showEvent(event)

    def _recolour(self) -> None:
        """Redraw at once in the colours of a new theme, before anything is painted."""
        self._recoloured = False
        self.redraw()

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        at = event.position().toPoint()
        if self._pressed_at is not None and abs(at.x() - self._pressed_at.x()) >= _LEAST_DRAG_PX:
            plot = self.panes[0].plot()
            ends = (plot.value_x(self._pressed_at.x()), plot.value_x(at.x()))
            for pane in self.panes:
                pane.selection = ends
                pane.refresh_overlay()
            return
        step = self._step_at(at.x())
        self.link.set_hovered(step)
        if step is not None:
            x = self.panes[0].plot().x(float(self.link.to_x(np.array([float(step)]))[0]))
            Tip.of(self).show_beside(self, QPoint(round(x), at.y()), self.tip_for(step))

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if event.button() == Qt.MouseButton.LeftButton:
            self._pressed_at = event.position().toPoint()

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        start, self._pressed_at = self._pressed_at, None
        chosen = self.panes[0].selection
        if chosen is not None:
            for pane in self.panes:
                pane.selection = None
                pane.refresh_overlay()
            first, last = sorted(round(self.link.to_step(value)) for value in chosen)
            self.range_selected.emit(max(0, first), max(0, last))
        elif start is not None and (step := self._step_at(event.position().x())) is not None:
            self.step_clicked.emit(step)

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        self._pressed_at = None
        self.link.set_zoom(None)

    def wheelEvent(self, event: QWheelEvent) -> None:
        """Zoom x with Ctrl held; otherwise scroll the page."""
        if not event.modifiers() & Qt.KeyboardModifier.ControlModifier:
            Tip.of(self).hide()  # the page scrolls away below it
            event.ignore()
            return
        x0, x1 = self.x_range()
        full = x1 - x0 if self.link.zoom is None else self._full_width()
        around = self.panes[0].plot().value_x(event.position().x())
        factor = 0.998 ** event.angleDelta().y()
        width = min(full, max(full / 200, (x1 - x0) * factor))
        if width >= full * 0.999:
            self.link.set_zoom(None)
        else:
            share = (around - x0) / ((x1 - x0) or 1.0)
            left = min(max(0.0, around - width * share), full - width)
            self.link.set_zoom((left, left + width))
        event.accept()

    def _full_width(self) -> float:
        """Return the end of the x axis that all charts of the page share; 0 without data."""
        ends = [end for pane in self.panes if (end := pane.last_x()) == end]
        self.link.set_end(id(self), max(ends, default=math.nan))
        reach = self.link.reach
        if not reach:
            return 0.0
        return x_reach(reach, self.link.planned) if self.link.kind == "step" else reach * 1.04

    def leaveEvent(self, event: QEvent) -> None:
        Tip.of(self).hide()
        self.link.set_hovered(None)

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        Tip.of(self).hide()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        match event.key():
            case Qt.Key.Key_Left:
                self._walk(-1)
            case Qt.Key.Key_Right:
                self._walk(1)
            case Qt.Key.Key_Home:
                self._walk(-1_000_000)
            case Qt.Key.Key_End:
                self._walk(1_000_000)
            case Qt.Key.Key_Space if self.link.crosshair is not None:
                self.step_clicked.emit(self.link.crosshair)
            case Qt.Key.Key_Escape if self.link.zoom is not None:
                self.link.set_zoom(None)
            case _:
                QWidget.keyPressEvent(self, event)
