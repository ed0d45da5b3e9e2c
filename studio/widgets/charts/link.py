"""State shared by all charts of a page: crosshair, zoom, unit of x, smoothing."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from PySide6.QtCore import QObject, QTimer, Signal

from studio.widgets.charts.smoothing import DEFAULT_WEIGHT
from studio.widgets.charts.ticks import x_label

X_KINDS = ("step", "time", "tokens", "cost")


class ChartLink(QObject):
    """Link between the charts and the step strip of one page. Signals: `crosshair_moved(step |
    None)`, `range_changed((x0, x1) | None)`, `axis_changed()`, `smoothing_changed()`."""

    crosshair_moved = Signal(object)
    range_changed = Signal(object)
    axis_changed = Signal()
    smoothing_changed = Signal()

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._hovered: int | None = None
        self._chosen: int | None = None
        self._range: tuple[float, float] | None = None
        self._kind = "step"
        self._planned = 0
        self._steps: NDArray[np.float64] = np.zeros(0)
        self._places: NDArray[np.float64] = np.zeros(0)
        self._smoothing = DEFAULT_WEIGHT
        self._ends: dict[int, float] = {}
        self._turn = QTimer(self)
        self._turn.setSingleShot(True)
        self._turn.setInterval(0)

    @property
    def crosshair(self) -> int | None:
        """Step of the crosshair: the hovered one, or else the selected one; None without both."""
        return self._hovered if self._hovered is not None else self._chosen

    @property
    def zoom(self) -> tuple[float, float] | None:
        """Zoomed x range; None if all data is shown."""
        return self._range

    @property
    def kind(self) -> str:
        """Unit of the x axis: step, time, tokens or cost."""
        return self._kind

    @property
    def planned(self) -> int:
        """Last planned step; 0 if unknown."""
        return self._planned

    @property
    def smoothing(self) -> float:
        """Smoothing weight, 0 to 0.99."""
        return self._smoothing

    def set_hovered(self, step: int | None) -> None:
        """Set the step under the pointer (None: none), in any chart or the strip."""
        before, self._hovered = self.crosshair, step
        if self.crosshair != before:
            self.crosshair_moved.emit(self.crosshair)

    def set_chosen(self, step: int | None) -> None:
        """Set the step selected in the strip, which stays marked (None: none)."""
        before, self._chosen = self.crosshair, step
        if self.crosshair != before:
            self.crosshair_moved.emit(self.crosshair)

    @property
    def reach(self) -> float:
        """End of the data of all charts on the x axis; 0 without data."""
        return max(self._ends.values(), default=0.0)

    def set_end(self, chart: int, end: float) -> None:
        """Set where the data of a chart ends (nan: no data), so that all charts have the same x
        range. `chart` is any number that identifies it."""
        before = self.reach
        if end == end:
            self._ends[chart] = end
        else:
            self._ends.pop(chart, None)
        if self.reach != before:
            self.axis_changed.emit()

    def forget_ends(self) -> None:
        """Forget all ends given to `set_end`, when the charts are about to be deleted."""
        self._ends.clear()

    def set_zoom(self, wanted: tuple[float, float] | None) -> None:
        """Zoom x of all charts, inside the data; None shows all data."""
        if wanted is not None and self.reach:
            low, high = max(0.0, min(wanted)), min(max(wanted), self.reach)
            wanted = (low, high) if high > low else None
        if wanted != self._range:
            self._range = wanted
            self.range_changed.emit(wanted)

    def set_axis(self, kind: str, places: Mapping[int, float] | None = None) -> None:
        """Set the unit of x: step, time, tokens or cost. `places`: step → seconds, tokens or
        dollars at its end; None for the unit step. Raises ValueError for another unit."""
        if kind not in X_KINDS:
            raise ValueError(f"x axis is {kind!r}, expected one of {', '.join(X_KINDS)}")
        ordered = sorted((places or {}).items())
        steps = np.array([step for step, _ in ordered], dtype=np.float64)
        positions = np.array([place for _, place in ordered], dtype=np.float64)
        same = kind == self._kind
        if same and np.array_equal(steps, self._steps) and np.array_equal(positions, self._places):
            return
        self._range = self._range if same else None
        self._kind, self._steps, self._places = kind, steps, positions
        self.axis_changed.emit()

    def set_planned(self, steps: int) -> None:
        """Set the last planned step (0: unknown), where the axis of steps ends."""
        if steps != self._planned:
            self._planned = steps
            self.axis_changed.emit()

    def take_turn(self) -> bool:
        """Reserve this turn of the event loop for redrawing one chart. Returns False if another
        chart has reserved it; redraw in a later turn then, so that no turn takes long."""
        if self._turn.isActive():
            return False
        self._turn.start()
        return True

    def set_smoothing(self, weight: float) -> None:
        """Set the smoothing weight (0 to 0.99) of all charts; 0 hides the raw lines behind them."""
        self._smoothing = min(0.99, max(0.0, weight))
        self.smoothing_changed.emit()

    def to_x(self, steps: NDArray[np.float64]) -> NDArray[np.float64]:
        """Positions of steps in the unit of the x axis, interpolated between known steps."""
        if self._kind == "step" or len(self._steps) == 0:
            return steps
        return np.interp(steps, self._steps, self._places)

    def title_of(self, step: int) -> str:
        """Describe a place on the x axis as a step; if the axis has another unit and no positions
        of steps, `step` is a time or number of tokens."""
        if self._kind == "step" or len(self._steps):
            return f"Step {step}"
        return f"{x_label(step, self._kind)}{' tokens' if self._kind == 'tokens' else ''}"

    def to_step(self, x: float) -> float:
        """Step at a position on the x axis, interpolated; may be fractional."""
        if self._kind == "step" or len(self._steps) == 0:
            return x
        return float(np.interp(x, self._places, self._steps))
