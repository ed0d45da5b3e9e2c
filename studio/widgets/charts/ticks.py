"""Round numbers for axes: positions of grid lines and range of an axis. Pure."""

import math

import numpy as np
from numpy.typing import NDArray

from studio.text.formatting import clock, duration, money, short, significant

_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


def round_step(rough: float) -> float:
    """Distance of ticks: smallest of 1, 2, 2.5, 5 times a power of ten that is at least `rough`."""
    if rough <= 0 or not math.isfinite(rough):
        return 1.0
    power = 10.0 ** math.floor(math.log10(rough))
    return next(step * power for step in _STEPS if step * power >= rough * (1 - 1e-9))


def ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Round tick values within [low, high], about `most` of them."""
    if not high > low:
        return [low]
    step = round_step((high - low) / max(1, most))
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(n * step, 12) + 0.0 for n in range(first, last + 1)]


def y_extent(low: float, high: float, zero: bool = True, most: int = 5) -> tuple[float, float]:
    """Range of an axis with round ends for about `most` ticks; `zero` includes 0."""
    if not (math.isfinite(low) and math.isfinite(high)):
        return 0.0, 1.0
    if zero:
        low, high = min(0.0, low), max(0.0, high)
    if high - low < 1e-12:
        pad = abs(high) * 0.5 or 1.0
        low, high = (0.0 if zero and low >= 0 else low - pad), high + pad
    step = round_step((high - low) / max(1, most - 1))
    return math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step


def powers(values: NDArray[np.float64]) -> tuple[float, float]:
    """Exponents of ten that enclose the positive values, at least one apart."""
    positive = values[np.isfinite(values) & (values > 0)]
    if not len(positive):
        return -1.0, 0.0
    low, high = math.log10(positive.min()), math.log10(positive.max())
    foot, top = math.floor(low + 1e-9), math.ceil(high - 1e-9)
    return float(foot), float(max(top, foot + 1))


def power_ticks(low: float, high: float, most: int = 5) -> list[float]:
    """About `most` powers of ten between two exponents; with 2 and 5 times each if few."""
    every = max(1, math.ceil((high - low) / max(1, most)))
    exponents = range(math.ceil(low - 1e-9), math.floor(high + 1e-9) + 1, every)
    values = [10.0**exponent for exponent in exponents]
    if 3 * (len(values) - 1) < most:
        values = sorted({power * part for power in values for part in (1, 2, 5)})
    return [value for value in values if value <= 10.0**high * (1 + 1e-9)] or [10.0**low]


def x_reach(last: float, planned: float = 0) -> float:
    """End of the x axis for data up to `last`: rounded up, but not beyond the last planned step
    (`planned`; 0: unknown)."""
    step = round_step(last / 10)
    reach = math.ceil(last / step + 0.1) * step
    if last <= 9:
        reach = 10.0 if last > 4 else 5.0
    whole = planned + max(0.5, planned / 50)  # avoids cutting the last point in half
    return min(reach, whole) if last <= planned else reach


def label(value: float, step: float, unit: str = "") -> str:
    """Label of a tick: 0.25, 8k, 1e−5, 100 s (unit "%": share as percentage); `step`: spacing."""
    if unit == "%":
        value, step = value * 100, step * 100
    if value == 0:
        words = "0"
    elif 0 < abs(value) < 1e-3:
        words = significant(value)
    elif abs(value) >= 1000 or unit not in ("", "%"):
        words = short(value)
    else:
        decimals = max(0, -math.floor(math.log10(step) + 1e-9)) if step > 0 else 2
        if abs(step * 10**decimals - round(step * 10**decimals)) > 1e-9:
            decimals += 1  # 2.5 and 0.25 need one more
        whole = abs(value - round(value)) < 1e-9 and abs(value) >= 1 and decimals > 1
        words = f"{abs(value):.{0 if whole else decimals}f}"
        words = ("\u2212" if value < 0 else "") + words
    return f"{words} {unit}" if unit and value else words


def x_label(value: float, kind: str) -> str:
    """Label of a tick of the x axis by its unit: step, time (s), tokens, cost ($)."""
    if kind == "time":
        return clock(value) if value < 3600 else duration(value)
    if kind == "cost":
        return "0" if value == 0 else money(value)
    return short(value)
