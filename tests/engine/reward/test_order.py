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


@pytest.mark.parametrize(
    ("values", "weights", "fitted"),
    [
        ([], None, []),
        ([1.0, 2.0, 3.0], None, [1.0, 2.0, 3.0]),
        ([3.0, 1.0], None, [2.0, 2.0]),
        ([3.0, 1.0], [3.0, 1.0], [2.5, 2.5]),
        ([1.0, 4.0, 3.0, 2.0, 5.0], None, [1.0, 3.0, 3.0, 3.0, 5.0]),
        ([4.0, 2.0, 0.0], [1.0, 1.0, 2.0], [1.5, 1.5, 1.5]),
    ],
)
def test_isotonic_by_hand(
    values: list[float], weights: list[float] | None, fitted: list[float]
) -> None:
    assert isotonic(values, weights) == pytest.approx(fitted)


def test_isotonic_needs_a_weight_for_each_value() -> None:
    with pytest.raises(ValueError, match=r"zip\(\)"):
        isotonic([1.0, 2.0], [1.0])


def test_a_map_is_fitted_from_enough_pairs() -> None:
    few, enough = (JudgeToPerson([(0.5, 0.9)] * count) for count in (9, 10))
    assert (few.count, few.is_fitted, enough.count, enough.is_fitted) == (9, False, 10, True)
    assert (few(0.1), enough(0.1), enough(0.5), enough(0.9)) == (0.1, 0.9, 0.9, 0.9)
    assert not JudgeToPerson([]).is_fitted


def test_the_map_by_hand() -> None:
    """Judged 0.2 four times, 0.6 four times and 0.4 twice; the person means 0.3, 0.9 and 0.1. The
    lower two are pooled by their numbers: (4 · 0.3 + 2 · 0.1) / 6."""
    pairs = [(0.6, 0.8), (0.2, 0.2), (0.4, 0.1)] * 2 + [(0.6, 1.0), (0.2, 0.4)] * 2
    found = JudgeToPerson(pairs)
    pooled = 1.4 / 6
    assert found.count == 10
    assert [found(score) for score in (0.0, 0.2, 0.3, 0.4)] == pytest.approx([pooled] * 4)
    assert found(0.45) == pytest.approx(0.75 * pooled + 0.25 * 0.9)
    assert [found(score) for score in (0.6, 0.7)] == pytest.approx([0.9, 0.9])


@pytest.mark.parametrize(
    ("scores", "layers", "found"),
    [
        ({"a": 0.2, "b": 0.6}, [["a"], ["b"]], {"a": 0.425, "b": 0.375}),
        (
            {"a": 0.2, "b": 0.6, "c": 0.4},
            [["a", "c"], ["b"]],
            {"a": 1.25 / 3, "c": 1.25 / 3, "b": 1.1 / 3},
        ),
        ({"a": 1.0, "b": 1.0}, [["a"], ["b"]], {"a": 1.0, "b": 0.95}),
        ({"a": 0.0, "b": 0.0}, [["a"], ["b"]], {"a": 0.05, "b": 0.0}),
        ({"a": None, "b": 0.6}, [["a"], ["b"]], {"a": 0.65, "b": 0.6}),
        ({"a": 0.6, "b": None}, [["a"], ["b"]], {"a": 0.6, "b": 0.5}),
        ({"a": None, "b": None}, [["a"], ["b"]], {"a": 0.525, "b": 0.475}),
        ({"a": 0.3}, [["a"]], {"a": 0.3}),
        ({"a": 0.3, "b": 0.9}, [["a"]], {"a": 0.3}),
        ({"a": 0.3}, [], {}),
    ],
)
def test_an_order_by_hand(
    scores: dict[str, float | None], layers: list[list[str]], found: dict[str, float]
) -> None:
    assert scores_in_order(scores, layers) == pytest.approx(found, abs=1e-6)


def test_unscored_layers_take_the_place_of_the_one_below() -> None:
    scores = {"a": None, "b": None, "c": 0.2}
    found = scores_in_order(scores, [["a"], ["b"], ["c"]])
    assert found == pytest.approx({"a": 0.3, "b": 0.25, "c": 0.2}, abs=1e-6)


def test_many_layers_share_the_span() -> None:
    """Scores of 26 layers cannot all be a twentieth above the next."""
    names = [f"t{n}" for n in range(26)]
    found = scores_in_order(dict.fromkeys(names, 0.5), [[name] for name in names], Span(0.0, 2.0))
    assert found == pytest.approx({name: 2.0 - 0.08 * n for n, name in enumerate(names)})
    below = scores_in_order(dict.fromkeys(names, 0.5), [[name] for name in names], Span(-2.0, 0.0))
    assert below == pytest.approx({name: -0.08 * n for n, name in enumerate(names)})


def test_an_order_in_a_wider_span() -> None:
    found = scores_in_order({"a": -1.0, "b": 3.0}, [["a"], ["b"]], Span(-1.0, 3.0))
    assert found == pytest.approx({"a": 1.1, "b": 0.9})
    assert scores_in_order({"a": None}, [["a"]], Span(-1.0, 5.0)) == {"a": 2.0}


@pytest.mark.parametrize(
    ("scores", "found"),
    [
        ({"a": None}, {"a": 1.0}),
        ({"a": 0.3}, {}),
        ({"a": 0.3, "b": None}, {}),
        ({"a": 0.5, "b": 0.5}, {"a": 0.525, "b": 0.475}),
        ({"a": 0.5, "b": 0.45}, {"a": 0.5, "b": 0.45}),
        ({"a": 1.0, "b": 1.0}, {"a": 1.0, "b": 0.95}),
        ({"a": 0.0, "b": 0.0}, {"a": 0.05, "b": 0.0}),
        ({"a": 0.2, "b": 0.8, "c": 0.8}, {"a": 0.6333333, "b": 0.5833333, "c": 0.5833333}),
        ({"a": 0.2, "b": 0.9, "c": 0.3}, {"a": 0.575, "b": 0.525, "c": 0.3}),
        ({"b": 0.5, "c": 0.7}, {"b": 0.5, "c": 0.7, "a": 0.75}),
        ({"a": None, "b": 1.0}, {"a": 1.0, "b": 0.95}),
    ],
)
def test_the_best_by_hand(scores: dict[str, float | None], found: dict[str, float]) -> None:
    assert scores_with_best(scores, "a") == pytest.approx(found, abs=1e-6)
    mirrored = {name: None if score is None else 1 - score for name, score in scores.items()}
    worst = {name: 1 - score for name, score in found.items()}
    assert scores_with_worst(mirrored, "a") == pytest.approx(worst, abs=1e-6)


def test_the_worst_in_a_wider_span() -> None:
    span = Span(-1.0, 3.0)
    assert scores_with_worst({"a": None}, "a", span) == {"a": -1.0}
    assert scores_with_worst({"a": 1.0, "b": 1.0}, "a", span) == pytest.approx({"a": 0.9, "b": 1.1})
    assert (Span().gap, span.gap) == (GAP, 0.2)
