"""Smoothing, envelope, axis limits and ticks."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from studio.widgets.charts.envelope import ENVELOPE_ABOVE, envelope
from studio.widgets.charts.smoothing import smooth
from studio.widgets.charts.ticks import (
    label,
    power_ticks,
    powers,
    round_step,
    ticks,
    x_label,
    x_reach,
    y_extent,
)

FINITE = st.floats(-1e6, 1e6)


@given(st.lists(FINITE, min_size=1, max_size=60), st.floats(0.05, 0.98))
def test_smoothing_is_bias_corrected_average(values: list[float], weight: float) -> None:
    m, expected = 0.0, []
    for t, value in enumerate(values, start=1):  # Adam's form: m / (1 - w^t)
        m = weight * m + (1 - weight) * value
        expected.append(m / (1 - weight**t))
    assert smooth(np.array(values), weight) == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_smoothing_starts_at_first_value_and_keeps_constant() -> None:
    assert smooth(np.array([5.0, 1.0]), 0.75)[0] == 5.0
    assert smooth(np.full(30, 0.3), 0.9) == pytest.approx(np.full(30, 0.3))


def test_smoothing_keeps_gaps() -> None:
    out = smooth(np.array([1.0, np.nan, np.inf, 2.0]), 0.75)
    assert np.isnan(out[1:3]).all()
    assert np.isfinite(out[[0, 3]]).all()


def test_zero_smoothing_returns_raw_values() -> None:
    values = np.array([3.0, np.nan, 1.0])
    np.testing.assert_array_equal(smooth(values, 0.0), values)
    with pytest.raises(ValueError, match="less than 1"):
        smooth(values, 1.0)


def test_envelope_returns_few_points_unchanged() -> None:
    xs = np.arange(float(ENVELOPE_ABOVE))
    result = envelope(xs, xs, 300)
    assert result[0] is xs
    assert result[1] is xs


@given(st.integers(0, 9999), st.integers(50, 400))
def test_envelope_keeps_spike(at: int, buckets: int) -> None:
    xs = np.arange(10_000.0)
    ys = np.zeros(10_000)
    ys[at] = 7.0
    out_x, out_y = envelope(xs, ys, buckets)
    assert len(out_x) <= 2 * buckets
    assert out_y.max() == 7.0
    assert out_x[out_y.argmax()] == at
    assert (np.diff(out_x) > 0).all()
    assert not np.isnan(out_y).any()


def test_envelope_keeps_gaps() -> None:
    ys = np.ones(4000)
    ys[1000:2000] = np.nan
    out_x, out_y = envelope(np.arange(4000.0), ys, 100)
    inside = (out_x > 1045) & (out_x < 1955)
    assert np.isnan(out_y).any()
    assert not np.isfinite(out_y[inside]).any()


@given(st.floats(-1e5, 1e5), st.floats(1e-3, 1e5), st.integers(3, 6))
def test_y_axis_contains_data_and_has_round_ticks(low: float, span: float, most: int) -> None:
    start, end = y_extent(low, low + span, zero=False, most=most)
    assert start <= low + 1e-6 * span
    assert end >= low + span - 1e-6 * span
    axis_ticks = ticks(start, end, most)
    assert 2 <= len(axis_ticks) <= most + 2
    assert all(start - 1e-6 * span <= t <= end + 1e-6 * span for t in axis_ticks)


def test_round_steps_ticks_and_labels() -> None:
    assert [round_step(r) for r in (0.03, 0.21, 3, 7)] == pytest.approx([0.05, 0.25, 5, 10])
    assert ticks(0, 1, 4) == [0, 0.25, 0.5, 0.75, 1.0]
    assert y_extent(float("nan"), float("nan")) == (0.0, 1.0)
    assert [label(v, 0.25) for v in (0, 0.25, 0.5, 1)] == ["0", "0.25", "0.50", "1"]
    assert label(8000, 4000) == "8k"
    assert [label(v, 2e-6) for v in (2e-6, 1e-5)] == ["2e\u22126", "1e\u22125"]
    assert [label(v, 0.005, "%") for v in (0, 0.005, 0.01)] == ["0", "0.5 %", "1.0 %"]
    assert label(-0.2, 0.2) == "\u22120.2"
    assert label(100, 100, "s") == "100 s"
    assert (x_label(90, "time"), x_label(1.5, "cost"), x_label(40, "step")) == (
        "1:30",
        "$1.50",
        "40",
    )


def test_x_axis_grows_in_round_steps() -> None:
    reached = [x_reach(last) for last in range(1, 200)]
    assert all(reach >= last for last, reach in enumerate(reached, start=1))
    assert len(set(reached)) < 40
    assert reached == sorted(reached)
    assert (x_reach(5, planned=5), x_reach(5, planned=120), x_reach(7, planned=5)) == (5.5, 10, 10)


def test_power_of_ten_ticks_contain_values() -> None:
    assert powers(np.array([3e-5, 0.2, np.nan, 0])) == (-5, 0)
    assert powers(np.array([1.0])) == (0, 1)
    assert powers(np.zeros(0)) == (-1, 0)
    assert power_ticks(-5, 0, 6) == pytest.approx([1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1])
    assert power_ticks(-5, 0, 3) == pytest.approx([1e-5, 1e-3, 0.1])
    assert power_ticks(0, 1, 5) == [1, 2, 5, 10]
