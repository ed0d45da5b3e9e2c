"""Debiased exponential smoothing of a noisy series with gaps. Pure."""

from math import isfinite, nan

import numpy as np
from numpy.typing import NDArray

DEFAULT_WEIGHT = 0.75


Array = NDArray[np.float64]


def smooth(values: Array, weight: float = DEFAULT_WEIGHT) -> Array:
    """Debiased exponential moving average with weight `weight` of the past; 0 returns the values.
    y_t = Σ w^(t-i) x_i / Σ w^(t-i) over the finite x_i, which is Adam's bias correction (Kingma and
    Ba, 2015, section 3) of m_t = w m_(t-1) + (1-w) x_t. Gaps are preserved: nan in, nan out."""
    return Smoother().smooth(values, weight)


class Smoother:
    """Incremental version of `smooth` for a series that grows at its end."""

    def __init__(self) -> None:
        self._weight = 0.0
        self._values: Array = np.zeros(0)
        self._out: Array = np.zeros(0)
        self._total = self._mass = 0.0
        self.worked_out = 0
        """Number of values processed so far."""

    def smooth(self, values: Array, weight: float) -> Array:
        """Return `smooth(values, weight)`, reusing the last result if `values` were only extended.
        Raises ValueError for a weight of 1 or more."""
        if weight <= 0:
            return np.array(values, dtype=np.float64)
        if weight >= 1:
            raise ValueError(f"smoothing weight is {weight}, expected less than 1")
        count = len(self._values)
        grown = np.array_equal(values[:count], self._values, equal_nan=True)
        if weight != self._weight or not grown:
            self._weight, self._out, count = weight, np.zeros(0), 0
            self._total = self._mass = 0.0
        self._out = np.concatenate([self._out, self._go_on(values[count:])])
        self._values = np.array(values, dtype=np.float64)
        return self._out

    def _go_on(self, values: Array) -> Array:
        out: list[float] = []
        weight, total, mass = self._weight, self._total, self._mass
        for value in values.tolist():
            if isfinite(value):
                total = weight * total + value
                mass = weight * mass + 1.0
                out.append(total / mass)
            else:
                out.append(nan)
        self._total, self._mass = total, mass
        self.worked_out += len(out)
        return np.array(out, dtype=np.float64)
