"""Figures are written one way everywhere."""

import math

import pytest

from studio.text import formatting as f


@pytest.mark.parametrize(
    ("told", "wanted"),
    [
        (f.number(-0.05), "\u22120.05"),
        (f.number(-0.001), "0.00"),
        (f.number(1204.5), "1,204.50"),
        (f.number(math.nan), "\u2013"),
        (f.number(None), "\u2013"),
        (f.significant(0.314), "0.31"),
        (f.significant(12.3), "12"),
        (f.significant(0.00421), "0.0042"),
        (f.significant(-3.14e-5), "\u22123.1e\u22125"),
        (f.significant(1e-5), "1e\u22125"),
        (f.significant(0), "0"),
        (f.signed(0.24), "+0.24"),
        (f.signed(-0.48), "\u22120.48"),
        (f.signed(0.0), "0.00"),
        (f.count(2944), "2,944"),
        (f.short(6700), "6.7k"),
        (f.short(200), "200"),
        (f.short(1_200_000), "1.2M"),
        (f.short(-8000), "\u22128k"),
        (f.percent(0.34), "34 %"),
        (f.money(1.84), "$1.84"),
        (f.money(4.8, forecast=True), "\u2248 $4.80"),
        (f.money(0.0062), "$0.0062"),
        (f.money(0.006), "$0.006"),
        (f.money(0), "$0.00"),
        (f.duration(0.038), "38 ms"),
        (f.duration(4.2), "4.2 s"),
        (f.duration(59.8), "1 min"),
        (f.duration(9600), "2 h 40 min"),
        (f.duration(7199), "2 h"),
        (f.duration(-1), "\u2013"),
        (f.clock(130), "2:10"),
        (f.clock(17), "0:17"),
        (f.clock(3730), "1:02:10"),
        (f.size(16_400_000_000), "16.4 GB"),
        (f.size(84_000_000), "84 MB"),
        (f.size(141e9), "141 GB"),
        (f.plural(1, "notice"), "1 notice"),
        (f.plural(2944, "trajectory", "trajectories"), "2,944 trajectories"),
        (f.ordinal(2), "2nd"),
        (f.ordinal(11), "11th"),
        (f.ordinal(23), "23rd"),
    ],
)
def test_figure(told: str, wanted: str) -> None:
    assert told == wanted
