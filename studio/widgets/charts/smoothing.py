"""Smoothing of a noisy series: exponential, debiased, honest about gaps. Pure."""

from math import isfinite, nan

import numpy as np
from numpy.typing import NDArray

DEFAULT_WEIGHT = 0.75


def smooth(values: NDArray[np.float64], weight: float = DEFAULT_WEIGHT) -> NDArray[np.float64]:
    """Debiased exponential moving average; `weight` is that of the past, 0 leaves it as it is.

    y_t = Σ w^(t-i) x_i / Σ w^(t-i) over the finite x_i, which is Adam's bias correction (Kingma and
    Ba, 2015, section 3) of m_t = w m_(t-1) + (1-w) x_t. A gap stays a gap: nan in, nan out.
    """
    if weight <= 0:
        return np.array(values, dtype=np.float64)
    if weight >= 1:
        raise ValueError(f"smoothing weight is {weight}, wanted less than 1")
    out: list[float] = []
    total = mass = 0.0
    for value in values.tolist():
        if isfinite(value):
            total = weight * total + value
            mass = weight * mass + 1.0
            out.append(total / mass)
        else:
            out.append(nan)
    return np.array(out, dtype=np.float64)
