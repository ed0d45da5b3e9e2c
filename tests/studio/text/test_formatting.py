"""Formatting of numbers, money, durations and sizes."""

import math
from collections.abc import Callable
from typing import Any

import pytest

from studio.text import formatting as f

EVERY: list[Callable[[float | None], str]] = [
    f.number, f.signed, f.count, f.short, f.significant, f.percent, f.money, f.duration, f.clock,
    f.size,
]  # fmt: skip


@pytest.mark.parametrize("write", EVERY)
def test_missing_value_is_formatted_as_dash(write: Callable[[float | None], str]) -> None:
    assert [write(value) for value in (None, math.nan, math.inf, -math.inf)] == ["–"] * 4


@pytest.mark.parametrize(
    ("write", "value", "wanted"),
    [
        (f.number, 0.73, "0.73"),
        (f.number, -0.05, "−0.05"),
        (f.number, -0.001, "0.00"),
        (f.number, 0, "0.00"),
        (f.number, 1204.5, "1,204.50"),
        *((f.number, digit, f"{digit}.00") for digit in range(1, 10)),
        *((f.number, -digit, f"−{digit}.00") for digit in range(1, 10)),
        (f.significant, 0.314, "0.31"),
        (f.significant, 12.3, "12"),
        (f.significant, 12345.6, "12,346"),
        (f.significant, 0.00421, "0.0042"),
        (f.significant, -0.5, "−0.50"),
        (f.significant, 1, "1.0"),
        (f.significant, 10, "10"),
        (f.significant, 0.001, "0.0010"),
        (f.significant, 999_999, "999,999"),
        (f.significant, 1e6, "1e6"),
        (f.significant, -3.14e-5, "−3.1e−5"),
        (f.significant, 9.99e-4, "1e−3"),
        (f.significant, 1e-5, "1e−5"),
        (f.significant, 0, "0"),
        (f.signed, 0.24, "+0.24"),
        (f.signed, -0.48, "−0.48"),
        (f.signed, 0.0, "0.00"),
        (f.signed, 0.001, "0.00"),
        *((f.signed, digit, f"+{digit}.00") for digit in range(1, 10)),
        (f.count, 2944, "2,944"),
        (f.count, 0, "0"),
        (f.short, 6700, "6.7k"),
        (f.short, 200, "200"),
        (f.short, 0.5, "0.5"),
        (f.short, 0.123456, "0.1235"),
        (f.short, 0, "0"),
        (f.short, 999, "999"),
        (f.short, 1000, "1k"),
        (f.short, 1_200_000, "1.2M"),
        (f.short, 3e9, "3G"),
        (f.short, 4.5e12, "4.5T"),
        (f.short, 4.5e15, "4500T"),
        (f.short, -8000, "−8k"),
        (f.percent, 0.34, "34 %"),
        (f.percent, -0.02, "−2 %"),
        (f.money, 1.84, "$1.84"),
        (f.money, -1234.5, "−$1,234.50"),
        (f.money, 0.1, "$0.10"),
        (f.money, 0.099, "$0.099"),
        (f.money, 0.05, "$0.05"),
        (f.money, 0.01, "$0.01"),
        (f.money, 0.0123, "$0.012"),
        (f.money, 0.0062, "$0.0062"),
        (f.money, 0.006, "$0.006"),
        (f.money, 0.00001, "$0.00"),
        (f.money, -0.0062, "−$0.0062"),
        (f.money, 0, "$0.00"),
        (f.duration, 0, "0 ms"),
        (f.duration, 0.038, "38 ms"),
        (f.duration, 0.999, "999 ms"),
        (f.duration, 0.9995, "1 s"),
        (f.duration, 4.2, "4.2 s"),
        (f.duration, 9.94, "9.9 s"),
        (f.duration, 9.95, "10 s"),
        (f.duration, 40.2, "40 s"),
        (f.duration, 59.4, "59 s"),
        (f.duration, 59.5, "1 min"),
        (f.duration, 720, "12 min"),
        (f.duration, 3569, "59 min"),
        (f.duration, 3600, "1 h"),
        (f.duration, 9600, "2 h 40 min"),
        (f.duration, 7199, "2 h"),
        (f.duration, 47 * 3600, "47 h"),
        (f.duration, 48 * 3600, "2 d"),
        (f.duration, 76 * 3600, "3 d 4 h"),
        (f.duration, -1, "–"),
        (f.clock, 130, "2:10"),
        (f.clock, 17, "0:17"),
        (f.clock, 0, "0:00"),
        (f.clock, 60.4, "1:00"),
        (f.clock, 3730, "1:02:10"),
        (f.clock, 36000, "10:00:00"),
        (f.clock, -1, "–"),
        (f.size, 0, "0 B"),
        (f.size, 999, "999 B"),
        (f.size, 999.5, "1 kB"),
        (f.size, 1500, "2 kB"),
        (f.size, 84_000_000, "84 MB"),
        (f.size, 1e9, "1 GB"),
        (f.size, 16_400_000_000, "16.4 GB"),
        (f.size, 141e9, "141 GB"),
        (f.size, 99.96e9, "100 GB"),
        (f.size, 100e9, "100 GB"),
        (f.size, 2.5e12, "2.5 TB"),
        (f.size, 2e15, "2,000 TB"),
        (f.size, -2500, "−2 kB"),
        (f.ordinal, 1, "1st"),
        (f.ordinal, 2, "2nd"),
        (f.ordinal, 3, "3rd"),
        (f.ordinal, 4, "4th"),
        *((f.ordinal, place, f"{place}th") for place in (10, 11, 12, 13, 14, 111, 112, 113)),
        (f.ordinal, 23, "23rd"),
        (f.ordinal, 101, "101st"),
    ],
)
def test_format(write: Callable[[Any], str], value: float, wanted: str) -> None:
    assert write(value) == wanted


def test_number_of_decimals_can_be_set() -> None:
    assert (f.number(0.125, 1), f.number(-0.04, 1), f.number(2.5, 0)) == ("0.1", "0.0", "2")
    assert (f.signed(0.125, 1), f.signed(-0.04, 1)) == ("+0.1", "0.0")
    assert (f.percent(0.1234, 1), f.significant(0.12346, 4)) == ("12.3 %", "0.1235")
    assert f.significant(1.2346e-7, 4) == "1.235e−7"


def test_forecast_of_money_is_marked_approximate() -> None:
    assert f.money(4.8, forecast=True) == "≈ $4.80"
    assert f.money(0.0062, forecast=True) == "≈ $0.0062"
    assert f.money(None, forecast=True) == "–"


def test_plural_follows_count() -> None:
    assert [f.plural(n, "notice") for n in (0, 1, 2)] == ["0 notices", "1 notice", "2 notices"]
    assert f.plural(1, "trajectory", "trajectories") == "1 trajectory"
    assert f.plural(2944, "trajectory", "trajectories") == "2,944 trajectories"
