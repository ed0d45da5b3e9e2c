"""Round numbers for axes: where the grid lines lie, how far an axis reaches. Pure."""

import math

from studio.figures import clock, duration, money, short

_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


def round_step(rough: float) -> float:
    """The smallest of 1, 2, 2.5, 5 times a power of ten that is at least `rough`."""
    if rough <= 0 or not math.isfinite(rough):
        return 1.0
    power = 10.0 ** math.floor(math.log10(rough))
    return next(step * power for step in _STEPS if step * power >= rough * (1 - 1e-9))


def ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Three to five round values within [low, high]."""
    if not high > low:
        return [low]
    step = round_step((high - low) / max(1, most))
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(n * step, 12) + 0.0 for n in range(first, last + 1)]


def y_extent(low: float, high: float, zero: bool = True, most: int = 5) -> tuple[float, float]:
    """The range of a vertical axis: round ends, from 0 where `zero` says so."""
    if not (math.isfinite(low) and math.isfinite(high)):
        return 0.0, 1.0
    if zero:
        low, high = min(0.0, low), max(0.0, high)
    if high - low < 1e-12:
        pad = abs(high) * 0.5 or 1.0
        low, high = (0.0 if zero and low >= 0 else low - pad), high + pad
    step = round_step((high - low) / max(1, most - 1))
    return math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step


def x_reach(last: float) -> float:
    """How far the x axis reaches for data that ends at `last`: in round steps, a little ahead."""
    if last <= 9:
        return 10.0 if last > 4 else 5.0
    step = round_step(last / 10)
    return math.ceil(last / step + 0.1) * step


def label(value: float, step: float, unit: str = "") -> str:
    """The words of a tick: 0, 0.25, 8k, 100 s."""
    if value == 0:
        words = "0"
    elif abs(value) >= 1000 or unit:
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
    """A tick of the x axis by what it counts: step, time (s), tokens, cost ($)."""
    if kind == "time":
        return clock(value) if value < 3600 else duration(value)
    if kind == "cost":
        return "0" if value == 0 else money(value)
    return short(value)
