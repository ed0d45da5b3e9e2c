"""Series of metrics over steps."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from studio.store.runs.series import Series


def make_series(*points: tuple[float, float]) -> Series:
    series = Series()
    for x, y in points:
        series.append(x, y)
    return series


def test_points_are_kept_in_order() -> None:
    series = make_series((1, 0.5), (2, 0.25), (4, 0.125))
    assert list(series) == [(1, 0.5), (2, 0.25), (4, 0.125)]
    assert (len(series), series.first, series.last, series.revision) == (3, 0.5, 0.125, 0)
    assert repr(series) == "Series([(1.0, 0.5), (2.0, 0.25), (4.0, 0.125)])"


def test_empty_series_has_no_first_and_last() -> None:
    series = Series()
    assert (list(series), len(series), series.revision) == ([], 0, 0)
    assert (series.first, series.last, series.at(0)) == (None, None, None)


def test_at_returns_value_of_exact_x_only() -> None:
    series = make_series((1, 0.5), (3, 0.25))
    assert [series.at(x) for x in (0, 1, 2, 3, 4)] == [None, 0.5, None, 0.25, None]


@pytest.mark.parametrize(
    ("x", "left", "revision"),
    [
        (0, [], 1),
        (1, [], 1),
        (2, [(1, 10)], 1),
        (2.5, [(1, 10), (2, 20)], 1),
        (3, [(1, 10), (2, 20)], 1),
        (3.5, [(1, 10), (2, 20), (3, 30)], 0),
    ],
)
def test_rewind_removes_points_from_x_on(
    x: float, left: list[tuple[float, float]], revision: int
) -> None:
    series = make_series((1, 10), (2, 20), (3, 30))
    series.rewind(x)
    assert (list(series), series.revision) == (left, revision)


def test_older_or_equal_point_replaces_later_ones() -> None:
    series = make_series((1, 10), (2, 20), (3, 30))
    series.append(3, 31)
    assert (list(series), series.revision) == ([(1, 10), (2, 20), (3, 31)], 1)
    series.append(1.5, 15)
    assert (list(series), series.revision) == ([(1, 10), (1.5, 15)], 2)


def test_series_with_equal_points_are_equal() -> None:
    rewound = make_series((1, 10), (2, 99), (2, 20))
    assert rewound.revision == 1
    assert rewound == make_series((1, 10), (2, 20))
    assert make_series((1, 10)) != make_series((2, 10))
    assert make_series((1, 10)) != make_series((1, 20))
    assert make_series((1, 10)) != [(1.0, 10.0)]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9))))
def test_x_increases_and_last_point_is_last_added(points: list[tuple[int, int]]) -> None:
    series = make_series(*points)
    xs = list(series.xs)
    assert xs == sorted(set(xs))
    assert list(series)[-1:] == [(float(x), float(y)) for x, y in points[-1:]]
