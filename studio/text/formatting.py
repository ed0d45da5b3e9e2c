"""Formatting of numbers: rewards, money, durations, counts. Pure functions.

True minus (U+2212), two decimals for rewards, a comma as thousands separator, a space before % and
units. Values that are not finite are written as an en dash: missing, never 0."""

import math

MINUS = "\u2212"
ABSENT = "\u2013"
_PREFIXES = ("", "k", "M", "G", "T")


def number(value: float | None, decimals: int = 2) -> str:
    """Format a number: 0.73, −0.05, 1,204.50; an en dash for None and values that are not
    finite."""
    if value is None or not math.isfinite(value):
        return ABSENT
    text = f"{abs(value):,.{decimals}f}"
    zero = not any(digit in text for digit in "123456789")
    return f"{MINUS}{text}" if value < 0 and not zero else text


def signed(value: float | None, decimals: int = 2) -> str:
    """Format an advantage or a change with its sign: +0.24, −0.48, 0.00; None: an en dash."""
    text = number(value, decimals)
    zero = not any(digit in text for digit in "123456789")
    return text if zero or text.startswith(MINUS) else f"+{text}"


def count(value: int | None) -> str:
    """Format a count: 2,944; None: an en dash."""
    return number(value, 0)


def short(value: float | None) -> str:
    """Format a number for axes and last values: 6.7k, 200, 0.5, 1.2M; None: an en dash."""
    if value is None or not math.isfinite(value):
        return ABSENT
    size = abs(value)
    power = 0
    while size >= 1000 and power < len(_PREFIXES) - 1:
        size /= 1000
        power += 1
    text = f"{size:.1f}" if power else f"{size:.4g}"
    text = text.removesuffix(".0")
    return f"{MINUS if value < 0 else ''}{text}{_PREFIXES[power]}"


def significant(value: float | None, digits: int = 2) -> str:
    """Format with `digits` significant digits: 0.31, 12, 0.0042, 3.1e−5, 1e−5; None: an en dash."""
    if value is None or not math.isfinite(value):
        return ABSENT
    if value == 0:
        return "0"
    sign = MINUS if value < 0 else ""
    if 1e-3 <= abs(value) < 1e6:
        decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
        return f"{sign}{abs(value):,.{decimals}f}"
    mantissa, _, power = f"{abs(value):.{digits - 1}e}".partition("e")
    mantissa = mantissa.removesuffix(".0")
    return f"{sign}{mantissa}e{str(int(power)).replace('-', MINUS)}"


def percent(share: float | None, decimals: int = 0) -> str:
    """Format a share from 0 to 1 as a percentage: 34 %; None: an en dash."""
    if share is None or not math.isfinite(share):
        return ABSENT
    return f"{number(share * 100, decimals)} %"


def money(usd: float | None, forecast: bool = False) -> str:
    """Format US dollars: $1.84, or ≈ $4.80 for a forecast; small amounts have two significant
    digits; None: an en dash."""
    if usd is None or not math.isfinite(usd):
        return ABSENT
    decimals = 2 if usd == 0 or abs(usd) >= 0.1 else 4 if abs(usd) < 0.01 else 3
    text = f"{MINUS if usd < 0 else ''}${abs(usd):,.{decimals}f}"
    if decimals > 2:
        text = text.rstrip("0").ljust(len(text) - decimals + 2, "0")
    return f"\u2248 {text}" if forecast else text


def duration(seconds: float | None) -> str:
    """Format a duration: 38 ms, 4.2 s, 40 s, 12 min, 2 h 40 min, 3 d 4 h; None: an en dash."""
    if seconds is None or not math.isfinite(seconds) or seconds < 0:
        return ABSENT
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s".replace(".0 s", " s")
    if seconds < 59.5:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"


IDLE_SHARE, IDLE_LEAST_S = 0.02, 60.0
"""Idle time is named from this share of the training time, and from these seconds."""


def idle(trained_s: float, idle_s: float) -> str:
    """Format the idle time of a run, `idle 9 h`; empty below 60 s or 2 % of the training time."""
    worth = idle_s >= max(IDLE_LEAST_S, IDLE_SHARE * trained_s)
    return f"idle {duration(idle_s)}" if worth else ""


def training_time(trained_s: float, idle_s: float = 0.0) -> str:
    """Format training time, followed by the idle time unless `idle` omits it: `1 h 12 min, idle 9
    h`."""
    parts = [duration(trained_s), idle(trained_s, idle_s)]
    return ", ".join(part for part in parts if part)


def clock(seconds: float | None) -> str:
    """Format a duration as a clock: 0:17, 2:10, 1:02:10; None: an en dash."""
    if seconds is None or not math.isfinite(seconds) or seconds < 0:
        return ABSENT
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def size(byte_count: float | None) -> str:
    """Format a number of bytes in decimal units: 84 MB, 16.4 GB; None: an en dash."""
    if byte_count is None or not math.isfinite(byte_count):
        return ABSENT
    amount, unit = float(byte_count), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(amount) < 999.5 or unit == "TB":
            break
        amount /= 1000
    decimals = 1 if unit in ("GB", "TB") and amount < 100 else 0
    return f"{number(amount, decimals).removesuffix('.0')} {unit}"


def plural(amount: int, one: str, many: str = "") -> str:
    """Format a count with its noun: 1 notice, 2 notices; `many` is the plural (empty: add s)."""
    return f"{count(amount)} {one if amount == 1 else many or one + 's'}"


def ordinal(place: int) -> str:
    """Format an ordinal number: 1st, 2nd, 3rd, 11th."""
    tail = (
        "th" if place % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(place % 10, "th")
    )
    return f"{place}{tail}"
