"""Scores that obey what a person says, against the definitions."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.reward.order import (
    GAP,
    LEAST_PAIRS,
    JudgeToPerson,
    Span,
    isotonic,
    scores_in_order,
    scores_with_best,
    scores_with_worst,
)

shares = st.floats(0, 1, width=32)


@given(st.lists(shares, min_size=1, max_size=7))
def test_isotonic_is_monotone_and_no_monotone_step_is_nearer(values: list[float]) -> None:
    fitted = isotonic(values)
    assert all(a <= b + 1e-12 for a, b in itertools.pairwise(fitted))
    assert sum(fitted) == pytest.approx(sum(values), abs=1e-6)
    best = sum((f - v) ** 2 for f, v in zip(fitted, values, strict=True))
    for cut, level in itertools.product(range(len(values) + 1), (0.0, 0.25, 0.5, 0.75, 1.0)):
        step = [min(f, level) if i < cut else max(f, level) for i, f in enumerate(fitted)]
        assert sum((s - v) ** 2 for s, v in zip(step, values, strict=True)) >= best - 1e-6


def test_the_map_is_identity_until_there_are_enough_pairs() -> None:
    few = JudgeToPerson([(0.5, 0.9)] * (LEAST_PAIRS - 1))
    assert few(0.3) == 0.3
    lenient = JudgeToPerson([(x / 10, min(1.0, x / 10 + 0.2)) for x in range(LEAST_PAIRS)])
    assert lenient(0.35) == pytest.approx(0.55)
    assert lenient(0.0) == pytest.approx(0.2)
    assert lenient(2.0) == pytest.approx(1.0)


@given(st.lists(st.tuples(shares, shares), min_size=LEAST_PAIRS, max_size=30), shares, shares)
def test_the_map_never_turns_an_order_around(pairs, one, other):  # type: ignore[no-untyped-def]
    to_person = JudgeToPerson(pairs)
    low, high = sorted((one, other))
    assert to_person(low) <= to_person(high) + 1e-9


@given(st.lists(shares, min_size=2, max_size=8), st.randoms())
def test_an_order_is_obeyed_within_bounds(values, chance):  # type: ignore[no-untyped-def]
    scores = {f"t{n}": value for n, value in enumerate(values)}
    names = list(scores)
    chance.shuffle(names)
    found = scores_in_order(scores, [[name] for name in names])
    gap = min(GAP, 1 / (len(names) - 1))
    for better, worse in itertools.pairwise(names):
        assert found[better] >= found[worse] + gap - 1e-9
    assert all(-1e-9 <= score <= 1 + 1e-9 for score in found.values())


def test_an_order_that_holds_already_changes_nothing() -> None:
    scores = {"a": 0.9, "b": 0.5, "c": 0.1}
    assert scores_in_order(scores, [["a"], ["b"], ["c"]]) == pytest.approx(scores)
    assert scores_in_order({"a": 0.4, "b": 0.6}, [["a", "b"]]) == pytest.approx(
        {"a": 0.5, "b": 0.5}
    )


@given(st.lists(shares, min_size=2, max_size=8), st.integers(0, 7))
def test_the_best_is_above_and_the_worst_below_all_others(values, which):  # type: ignore[no-untyped-def]
    scores = {f"t{n}": value for n, value in enumerate(values)}
    chosen = f"t{which % len(values)}"
    up, down = scores | scores_with_best(scores, chosen), scores | scores_with_worst(scores, chosen)
    for name in scores:
        if name != chosen:
            assert up[chosen] >= up[name] + GAP - 1e-6
            assert down[chosen] <= down[name] - GAP + 1e-6
    assert all(-1e-9 <= score <= 1 + 1e-9 for score in (*up.values(), *down.values()))


def test_only_who_stands_in_the_way_is_moved() -> None:
    scores = {"a": 0.5, "b": 0.9, "c": 0.2}
    assert scores_with_best(scores, "a") == pytest.approx({"a": 0.725, "b": 0.675, "c": 0.2})
    assert scores_with_best({"a": 0.9, "b": 0.2}, "a") == pytest.approx({"a": 0.9, "b": 0.2})
    assert scores_with_best({"a": None, "b": 0.2, "c": 0.6}, "a") == pytest.approx(
        {"a": 0.65, "b": 0.2, "c": 0.6}
    )


def test_a_wider_span_has_a_wider_gap() -> None:
    span = Span(-1.0, 3.0)
    found = scores_with_best({"a": -0.5, "b": 2.5}, "a", span)
    assert found["a"] - found["b"] == pytest.approx(4 * GAP)
    assert scores_with_best({"a": None}, "a", span) == {"a": 3.0}
