"""Series of a chart: lines, bands, stacked bars and validation diamonds, each with its data. A
series holds numpy arrays by step and emits changes; `marks.py` draws it."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from studio.text import formatting
from studio.widgets.charts.smoothing import Smoother

Array = NDArray[np.float64]


def _array(values: ArrayLike) -> Array:
    return np.asarray(values, dtype=np.float64).ravel()


class Series:
    """Series with a name for the legend, a plot token, and steps in ascending order."""

    legend_mark = "line"

    def __init__(self, name: str, token: str) -> None:
        self.name = name
        self.token = token
        self.steps: Array = np.zeros(0)
        self.on_change: Callable[[], None] = lambda: None

    def y_extent(self) -> tuple[float, float]:
        """Minimum and maximum value; nan, nan without data."""
        raise NotImplementedError

    def tooltip_at(self, step: int) -> list[tuple[str, str]]:
        """Lines of the tooltip at a step, as (name, figure) pairs."""
        raise NotImplementedError

    def _index(self, step: int) -> int:
        index = int(np.searchsorted(self.steps, step))
        return index if index < len(self.steps) and self.steps[index] == step else -1


class LineSeries(Series):
    """Line of smoothed values, with the raw ones faintly below it. Without `ghost`: raw values
    only; with `behind`: smoothed values only, drawn below the other lines."""

    def __init__(
        self,
        name: str,
        token: str,
        *,
        ghost: bool = True,
        dashed: bool = False,
        filled: bool = False,
        behind: bool = False,
        width_px: float = 2.25,
        form: Callable[[float], str] = formatting.number,
    ) -> None:
        super().__init__(name, token)
        self.behind = behind
        self.ghost, self.dashed, self.filled, self.width_px = (ghost, dashed, filled, width_px)
        self.form = form
        self.values: Array = np.zeros(0)
        self.smoother = Smoother()
        self._smoothed: tuple[float, Array] | None = None

    def set_data(self, steps: ArrayLike, values: ArrayLike) -> None:
        """Set the values by step; nan is a gap."""
        self.steps, self.values = _array(steps), _array(values)
        if len(self.steps) != len(self.values):
            raise ValueError(f"{self.name}: {len(self.steps)} steps, {len(self.values)} values")
        self._smoothed = None
        self.on_change()

    def smoothed(self, weight: float) -> Array:
        """Values smoothed with a weight (0 to 0.99); the raw values for a line created with
        `ghost=False`."""
        if not self.ghost:
            return self.values
        if self._smoothed is None or self._smoothed[0] != weight:
            self._smoothed = (weight, self.smoother.smooth(self.values, weight))
        return self._smoothed[1]

    def y_extent(self) -> tuple[float, float]:
        return _finite_extent(self.values)

    def tooltip_at(self, step: int) -> list[tuple[str, str]]:
        index = self._index(step)
        return [(self.name, self.form(float(self.values[index])))] if index >= 0 else []

    def smoothed_at(self, step: int, weight: float) -> str:
        """Format the smoothed value at a step; empty if the line shows raw values there."""
        index = self._index(step)
        if not self.ghost or weight <= 0 or index < 0:
            return ""
        return self.form(float(self.smoothed(weight)[index]))


class HeldLineSeries(LineSeries):
    """Line of one of several runs, whose points are at other x than those of the others: between
    two points, the earlier one holds."""

    def _index(self, step: int) -> int:
        index = int(np.searchsorted(self.steps, step, side="right")) - 1
        return index if index >= 0 and step <= self.steps[-1] else -1


class BandSeries(Series):
    """Percentile band, an area without an edge."""

    legend_mark = "band"

    def __init__(
        self, name: str, token: str, form: Callable[[float], str] = formatting.short
    ) -> None:
        super().__init__(name, token)
        self.low: Array = np.zeros(0)
        self.high: Array = np.zeros(0)
        self.form = form

    def set_data(self, steps: ArrayLike, low: ArrayLike, high: ArrayLike) -> None:
        """Set the lower and upper percentile by step."""
        self.steps, self.low, self.high = _array(steps), _array(low), _array(high)
        self.on_change()

    def y_extent(self) -> tuple[float, float]:
        return _finite_extent(np.concatenate([self.low, self.high]))

    def tooltip_at(self, step: int) -> list[tuple[str, str]]:
        index = self._index(step)
        if index < 0:
            return []
        ends = (self.form(float(self.low[index])), self.form(float(self.high[index])))
        return [(self.name, f"{ends[0]} to {ends[1]}")]


class BarSeries(Series):
    """Stacked bars per step, bottom up in pipeline order, 60 % of the slot wide."""

    legend_mark = "square"

    def __init__(
        self,
        names: Sequence[str],
        tokens: Sequence[str],
        form: Callable[[float], str] = formatting.number,
    ) -> None:
        super().__init__(names[0], tokens[0])
        self.names, self.tokens = tuple(names), tuple(tokens)
        self.form = form
        self.stack: Array = np.zeros((len(names), 0))
        self.newest_token: str | None = None

    def set_data(
        self, steps: ArrayLike, *parts: ArrayLike, newest_token: str | None = None
    ) -> None:
        """Set the values by step, one array per stacked part; `newest_token` is the colour of the
        last bar (None: like the others)."""
        self.steps = _array(steps)
        self.stack = np.vstack([_array(part) for part in parts])
        self.newest_token = newest_token
        self.on_change()

    def y_extent(self) -> tuple[float, float]:
        if self.stack.shape[1] == 0:
            return float("nan"), float("nan")
        return 0.0, float(np.nansum(self.stack, axis=0).max())

    def tooltip_at(self, step: int) -> list[tuple[str, str]]:
        index = self._index(step)
        if index < 0:
            return []
        return [
            (n, self.form(float(v))) for n, v in zip(self.names, self.stack[:, index], strict=True)
        ]


class ValidationSeries(Series):
    """Validation results: diamonds with 95 % whiskers, never joined by a line."""

    legend_mark = "diamond"

    def __init__(self, name: str = "validation, 95 % CI", token: str = "text") -> None:
        super().__init__(name, token)
        self.means: Array = np.zeros(0)
        self.low: Array = np.zeros(0)
        self.high: Array = np.zeros(0)

    def set_data(self, steps: ArrayLike, means: ArrayLike, low: ArrayLike, high: ArrayLike) -> None:
        """Set the means and interval ends by step."""
        self.steps, self.means = _array(steps), _array(means)
        self.low, self.high = _array(low), _array(high)
        self.on_change()

    def y_extent(self) -> tuple[float, float]:
        return _finite_extent(np.concatenate([self.low, self.means, self.high]))

    def tooltip_at(self, step: int) -> list[tuple[str, str]]:
        index = self._index(step)
        if index < 0:
            return []
        low, mean, high = (
            formatting.number(float(a[index])) for a in (self.low, self.means, self.high)
        )
        return [("validation", f"{mean}, {low} to {high}")]


def _finite_extent(values: Array) -> tuple[float, float]:
    finite = values[np.isfinite(values)]
    if len(finite) == 0:
        return float("nan"), float("nan")
    return float(finite.min()), float(finite.max())
