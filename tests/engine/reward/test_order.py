"""Scores that satisfy a person's order, against the definitions."""

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
def test_isotonic_is_the_nearest_monotone_fit(values: list[float]) -> None:
    fitted = isotonic(values)
    assert all(a <= b + 1e-12 for a, b in itertools.pairwise(fitted))
    assert sum(fitted) == pytest.approx(sum(values), abs=1e-6)
    best = sum((f - v) ** 2 for f, v in zip(fitted, values, strict=True))
    for cut, level in itertools.product(range(len(values) + 1), (0.0, 0.25, 0.5, 0.75, 1.0)):
        step = [min(f, level) if i < cut else max(f, level) for i, f in enumerate(fitted)]
        assert sum((s - v) ** 2 for s, v in zip(step, values, strict=True)) >= best - 1e-6


def test_judge_to_person_is_identity_until_enough_pairs() -> None:
    few = JudgeToPerson([(0.5, 0.9)] * (LEAST_PAIRS - 1))
    assert few(0.3) == 0.3
    lenient = JudgeToPerson([(x / 10, min(1.0, x / 10 + 0.2)) for x in range(LEAST_PAIRS)])
    assert lenient(0.35) == pytest.approx(0.55)
    assert lenient(0.0) == pytest.approx(0.2)
    assert lenient(2.0) == pytest.approx(1.0)


@given(st.lists(st.tuples(shares, shares), min_size=LEAST_PAIRS, max_size=30), shares, shares)
def test_judge_to_person_is_monotone(pairs, one, other):  # type: ignore[no-untyped-def]
    to_person = JudgeToPerson(pairs)
    low, high = sorted((one, other))
    assert to_person(low) <= to_person(high) + 1e-9


@given(st.lists(shares, min_size=2, max_size=8), st.randoms())
def test_scores_in_order_keep_the_gap_within_bounds(values, rng):  # type: ignore[no-untyped-def]
    scores = {f"t{n}": value for n, value in enumerate(values)}
    names = list(scores)
    rng.shuffle(names)
    result = scores_in_order(scores, [[name] for name in names])
    gap = min(GAP, 1 / (len(names) - 1))
    for better, worse in itertools.pairwise(names):
        assert result[better] >= result[worse] + gap - 1e-9
    assert all(-1e-9 <= score <= 1 + 1e-9 for score in result.values())


def test_satisfied_order_leaves_scores_unchanged() -> None:
    scores = {"a": 0.9, "b": 0.5, "c": 0.1}
    assert scores_in_order(scores, [["a"], ["b"], ["c"]]) == pytest.approx(scores)
    assert scores_in_order({"a": 0.4, "b": 0.6}, [["a", "b"]]) == pytest.approx(
        {"a": 0.5, "b": 0.5}
    )


@given(st.lists(shares, min_size=2, max_size=8), st.integers(0, 7))
def test_best_is_above_and_worst_below_all_others(values, which):  # type: ignore[no-untyped-def]
    scores = {f"t{n}": value for n, value in enumerate(values)}
    chosen = f"t{which % len(values)}"
    up, down = scores | scores_with_best(scores, chosen), scores | scores_with_worst(scores, chosen)
    for name in scores:
        if name != chosen:
            assert up[chosen] >= up[name] + GAP - 1e-6
            assert down[chosen] <= down[name] - GAP + 1e-6
    assert all(-1e-9 <= score <= 1 + 1e-9 for score in (*up.values(), *down.values()))


def test_scores_with_best_moves_only_conflicting_scores() -> None:
    scores = {"a": 0.5, "b": 0.9, "c": 0.2}
    assert scores_with_best(scores, "a") == pytest.approx({"a": 0.725, "b": 0.675, "c": 0.2})
    assert scores_with_best({"a": 0.9, "b": 0.2}, "a") == pytest.approx({"a": 0.9, "b": 0.2})
    assert scores_with_best({"a": None, "b": 0.2, "c": 0.6}, "a") == pytest.approx(
        {"a": 0.65, "b": 0.2, "c": 0.6}
    )


def test_gap_scales_with_the_span() -> None:
    span = Span(-1.0, 3.0)
    result = scores_with_best({"a": -0.5, "b": 2.5}, "a", span)
    assert result["a"] - result["b"] == pytest.approx(4 * GAP)
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
def test_isotonic_matches_hand_computed_values(
    values: list[float], weights: list[float] | None, fitted: list[float]
) -> None:
    assert isotonic(values, weights) == pytest.approx(fitted)


def test_isotonic_with_missing_weight_raises_value_error() -> None:
    with pytest.raises(ValueError, match=r"zip\(\)"):
        isotonic([1.0, 2.0], [1.0])


def test_judge_to_person_is_fitted_from_enough_pairs() -> None:
    few, enough = (JudgeToPerson([(0.5, 0.9)] * count) for count in (9, 10))
    assert (few.count, few.is_fitted, enough.count, enough.is_fitted) == (9, False, 10, True)
    assert (few(0.1), enough(0.1), enough(0.5), enough(0.9)) == (0.1, 0.9, 0.9, 0.9)
    assert not JudgeToPerson([]).is_fitted


def test_judge_to_person_matches_hand_computed_values() -> None:
    """Judge 0.2 four times, 0.6 four times, 0.4 twice; the person's means are 0.3, 0.9 and 0.1.
    The lower two are pooled by count: (4 · 0.3 + 2 · 0.1) / 6."""
    pairs = [(0.6, 0.8), (0.2, 0.2), (0.4, 0.1)] * 2 + [(0.6, 1.0), (0.2, 0.4)] * 2
    result = JudgeToPerson(pairs)
    pooled = 1.4 / 6
    assert result.count == 10
    assert [result(score) for score in (0.0, 0.2, 0.3, 0.4)] == pytest.approx([pooled] * 4)
    assert result(0.45) == pytest.approx(0.75 * pooled + 0.25 * 0.9)
    assert [result(score) for score in (0.6, 0.7)] == pytest.approx([0.9, 0.9])


@pytest.mark.parametrize(
    ("scores", "layers", "result"),
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
def test_scores_in_order_match_hand_computed_values(
    scores: dict[str, float | None], layers: list[list[str]], result: dict[str, float]
) -> None:
    assert scores_in_order(scores, layers) == pytest.approx(result, abs=1e-6)


def test_unscored_layers_are_placed_above_the_next_scored_layer() -> None:
    scores = {"a": None, "b": None, "c": 0.2}
    result = scores_in_order(scores, [["a"], ["b"], ["c"]])
    assert result == pytest.approx({"a": 0.3, "b": 0.25, "c": 0.2}, abs=1e-6)


def test_many_layers_share_the_span() -> None:
    """The gap of a twentieth does not fit 26 layers, so it shrinks."""
    names = [f"t{n}" for n in range(26)]
    result = scores_in_order(dict.fromkeys(names, 0.5), [[name] for name in names], Span(0.0, 2.0))
    assert result == pytest.approx({name: 2.0 - 0.08 * n for n, name in enumerate(names)})
    below = scores_in_order(dict.fromkeys(names, 0.5), [[name] for name in names], Span(-2.0, 0.0))
    assert below == pytest.approx({name: -0.08 * n for n, name in enumerate(names)})


def test_scores_in_order_use_a_wider_span() -> None:
    result = scores_in_order({"a": -1.0, "b": 3.0}, [["a"], ["b"]], Span(-1.0, 3.0))
    assert result == pytest.approx({"a": 1.1, "b": 0.9})
    assert scores_in_order({"a": None}, [["a"]], Span(-1.0, 5.0)) == {"a": 2.0}


@pytest.mark.parametrize(
    ("scores", "result"),
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
def test_scores_with_best_and_worst_match_hand_computed_values(
    scores: dict[str, float | None], result: dict[str, float]
) -> None:
    assert scores_with_best(scores, "a") == pytest.approx(result, abs=1e-6)
    mirrored = {name: None if score is None else 1 - score for name, score in scores.items()}
    worst = {name: 1 - score for name, score in result.items()}
    assert scores_with_worst(mirrored, "a") == pytest.approx(worst, abs=1e-6)


def test_scores_with_worst_use_a_wider_span() -> None:
    span = Span(-1.0, 3.0)
    assert scores_with_worst({"a": None}, "a", span) == {"a": -1.0}
    assert scores_with_worst({"a": 1.0, "b": 1.0}, "a", span) == pytest.approx({"a": 0.9, "b": 1.1})
    assert (Span().gap, span.gap) == (GAP, 0.2)
