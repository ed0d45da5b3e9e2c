"""Rank agreement, against hand-computed values and the definition."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.judge.calibration.agreement import kendall_tau, majority, order_of, tau_of

numbers = st.lists(st.integers(0, 5).map(float), min_size=2, max_size=9)


def test_kendall_tau_matches_hand_computed_values() -> None:
    assert kendall_tau([1, 2, 3], [1, 2, 3]) == 1
    assert kendall_tau([1, 2, 3], [3, 2, 1]) == -1
    assert kendall_tau([1, 2, 3, 4], [1, 2, 4, 3]) == pytest.approx(4 / 6)
    # one tie on one side: five ordered pairs against six, four agree and one does not
    assert kendall_tau([1, 1, 2, 3], [1, 2, 4, 3]) == pytest.approx((4 - 1) / math.sqrt(5 * 6))


def test_kendall_tau_of_ties_and_of_a_single_value() -> None:
    assert kendall_tau([1], [1]) is None
    assert kendall_tau([1, 1], [2, 2]) == 1
    assert kendall_tau([1, 1], [1, 2]) == 0


@given(numbers, st.randoms())
def test_kendall_tau_is_symmetric_bounded_and_scale_invariant(values: list[float], rng) -> None:  # type: ignore[no-untyped-def]
    other = [rng.random() for _ in values]
    tau = kendall_tau(values, other)
    assert tau is not None
    assert -1 - 1e-12 <= tau <= 1 + 1e-12
    assert tau == kendall_tau(other, values)
    assert tau == kendall_tau([2 * v + 1 for v in values], other)


def test_tau_of_ignores_ids_scored_by_only_one_judge() -> None:
    assert tau_of({"a": 1, "b": 2, "c": 0}, {"a": 1, "b": 2}) == 1
    assert tau_of({"a": 1}, {"b": 2}) is None


def test_majority_vote_ranks_trajectories() -> None:
    judges = [{"a": 0.9, "b": 0.1, "c": 0.5}, {"a": 0.2, "b": 0.1, "c": 0.0}, {"a": 0.3, "b": 0.4}]
    assert majority(judges, ["a", "b", "c", "d"]) == {"a": 1.0, "b": 0.25, "c": 0.25}
    assert majority([{"a": 0.3}], ["a", "b"]) == {"a": 0.5}


def test_order_of_returns_sign_with_tolerance() -> None:
    assert [order_of(*two) for two in ((2, 1), (1, 2), (1, 1), (0, 1e-9), (1.1e-9, 0))] == [
        1, -1, 0, 0, 1
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("judges", "expected"),
    [
        ([], {}),
        ([{"a": 0.3}], {"a": 0.5}),
        ([{"a": 0.3}, {"b": 0.9}], {"a": 0.5, "b": 0.5}),
        ([{"a": 0.3, "b": 0.1, "c": 0.0}], {"a": 1.0, "b": 0.5, "c": 0.0}),
        ([{"a": 1, "b": 0}, {"a": 0, "b": 1}, {"a": 0, "b": 1}], {"a": 0.0, "b": 1.0}),
        ([{"a": 1, "b": 0}, {"a": 0.4, "b": 0.5}], {"a": 0.5, "b": 0.5}),
    ],
)
def test_majority_counts_judges_instead_of_summing_scores(
    judges: list[dict[str, float]], expected: dict[str, float]
) -> None:
    assert majority(judges, ["a", "b", "c", "d"]) == expected
