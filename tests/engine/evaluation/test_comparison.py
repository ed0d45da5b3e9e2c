"""Paired differences, intervals and p values: exact where possible, calibrated for equal models."""

import itertools
import math
import random

import pytest

from engine.evaluation.comparison import (
    LEAST,
    MOST_EXACT,
    SAMPLED,
    compare,
    difference_of,
    subset_means,
    verdict_word,
)
from engine.protocol.records.runs import Interval
from tests.bench.coverage import CASES, continuous, held, ours, pass_or_fail


def test_only_common_scenarios_are_compared() -> None:
    result = compare({"a": 1.0, "b": 1.0, "c": 0.5}, {"b": 0.5, "c": 0.5, "d": 1.0}, "base")
    assert result.difference is not None
    assert result.difference.count == 2
    assert result.difference.mean == 0.25
    assert (result.wins, result.ties, result.losses) == (1, 1, 0)
    assert result.against == "base"
    disjoint = compare({"a": 1.0}, {"b": 1.0})
    assert (disjoint.difference, disjoint.p, disjoint.word) == (None, None, "no difference shown")


def test_equal_rewards_have_zero_difference() -> None:
    rewards = {f"s{n}": n / 7 for n in range(30)}
    result = compare(rewards, rewards)
    assert result.difference is not None
    assert (result.difference.mean, result.difference.low, result.difference.high) == (0, 0, 0)
    assert (result.p, result.ties, result.word) == (1.0, 30, "no difference shown")


@pytest.mark.parametrize("count", [6, 8, 11])
def test_p_value_equals_that_of_all_sign_flips(count: int) -> None:
    rng = random.Random(count)
    differences = [rng.gauss(0.4, 1) for _ in range(count)]
    observed = abs(math.fsum(differences))
    flips = list(itertools.product((-1, 1), repeat=count))
    sums = [abs(sum(s * d for s, d in zip(flip, differences, strict=True))) for flip in flips]
    expected = sum(value >= observed - 1e-12 for value in sums) / len(flips)
    assert difference_of(differences)[1] == pytest.approx(expected)


@pytest.mark.parametrize("count", [6, 8, 10])
def test_false_positive_rate_is_at_most_5_percent(count: int) -> None:
    """Exact for any sizes of the differences: all sign combinations are enumerated."""
    rng = random.Random(count)
    for sizes in ([rng.expovariate(1) for _ in range(count)], [1.0] * (count - 3) + [0.0] * 3):
        misses = 0
        for flip in itertools.product((-1, 1), repeat=count):
            low, high = ours([s * d for s, d in zip(flip, sizes, strict=True)])
            misses += not low - 1e-9 <= 0 <= high + 1e-9
        assert misses / 2**count <= 0.05


def test_interval_p_value_and_verdict_are_consistent() -> None:
    rng = random.Random(1)
    words = set()
    for _ in range(120):
        count, shift = rng.choice((3, 6, 9, 14, 30)), rng.choice((0, 0, 0.5, -0.8))
        baseline = {str(n): rng.choice((0.0, 0.5, 1.0)) for n in range(count)}
        shifted = {name: value + shift + rng.gauss(0, 0.7) for name, value in baseline.items()}
        result = compare(shifted, baseline)
        assert result.difference is not None
        assert result.p is not None
        holds_0 = result.difference.low <= 1e-9 and result.difference.high >= -1e-9
        assert holds_0 == (result.p > 0.05) == (result.word == "no difference shown")
        assert result.difference.low <= result.difference.mean <= result.difference.high
        words.add(result.word)
    assert words == {"better", "worse", "no difference shown"}


def test_too_few_scenarios_show_no_difference() -> None:
    result, p = difference_of([0.5] * (LEAST - 1))
    assert result is not None
    assert (result.low, result.high, result.mean) == (0.0, 0.5, 0.5)
    assert p == pytest.approx(2 / 2**5)
    enough, p = difference_of([0.5] * LEAST)
    assert enough is not None
    assert enough.low == 0.5
    assert p == pytest.approx(2 / 2**6)


@pytest.mark.parametrize("count", [20, 50, 100])
def test_interval_of_equal_models_contains_zero(count: int) -> None:
    """0/1 rewards: at least 95 of 100 seeds, since ties make the test conservative."""
    case = next(case for case in CASES if case.draw is pass_or_fail)
    assert held(case, count, 100, ours) >= 95


def test_interval_of_equal_models_contains_zero_for_continuous_rewards() -> None:
    """The interval is exact: of 300 cases 95% are expected, minus two standard deviations."""
    case = next(case for case in CASES if case.draw is continuous)
    counts = [held(case, count, 100, ours) for count in (20, 35, 50)]
    assert sum(counts) >= 0.95 * 300 - 2 * math.sqrt(300 * 0.95 * 0.05), counts


def test_subset_means_are_deterministic() -> None:
    values = [float(n % 5) for n in range(40)]
    assert subset_means(values) == subset_means(values)
    assert len(subset_means(values)) == 7999
    assert len(subset_means(values[:7])) == 2**7 - 1


def means_of(values: list[float], subsets: list[int]) -> list[float]:
    """Sorted means of subsets given as bit masks."""
    chosen = [[v for n, v in enumerate(values) if bits >> n & 1] for bits in subsets]
    return sorted(math.fsum(subset) / len(subset) for subset in chosen)


@pytest.mark.parametrize("count", [1, 3, MOST_EXACT])
def test_few_differences_use_all_subsets(count: int) -> None:
    values = [(n * 7 % 11) / 8 for n in range(count)]
    assert subset_means(values) == pytest.approx(means_of(values, list(range(1, 2**count))))


@pytest.mark.parametrize("count", [MOST_EXACT + 1, 16, 17, 30])
def test_many_differences_use_sampled_subsets(count: int) -> None:
    values = [(n * 7 % 11) / 8 for n in range(count)]
    rng = random.Random(0)
    masks = [bits for _ in range(SAMPLED + 99) if (bits := rng.getrandbits(count))]
    assert subset_means(values) == pytest.approx(means_of(values, masks[:SAMPLED]))


@pytest.mark.parametrize(
    ("count", "index"), [(6, 0), (7, 2), (8, 5), (MOST_EXACT, 50), (MOST_EXACT + 3, 199)]
)
def test_interval_ends_are_order_statistics(count: int, index: int) -> None:
    """2.5% of subset means are beyond each end: the first of 63, the sixth of 255."""
    values = [(n * 7 % 11) / 8 + n / 1000 for n in range(count)]
    means = subset_means(values)
    result, p = difference_of(values)
    assert result is not None
    assert (result.low, result.high) == (means[index], means[-index - 1])
    assert (result.mean, result.count) == (math.fsum(values) / count, count)
    assert p == pytest.approx(2 * (1 + sum(mean <= 1e-9 for mean in means)) / (len(means) + 1))


def test_interval_of_few_differences_is_their_range_with_zero() -> None:
    result, p = difference_of([0.5, -0.25, 1.0])
    assert result == Interval(mean=1.25 / 3, low=-0.25, high=1.0, count=3)
    assert p == 2 * (1 + 1) / 8
    assert difference_of([-0.5]) == (Interval(mean=-0.5, low=-0.5, high=0.0, count=1), 1.0)
    assert difference_of([]) == (None, None)


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [
        (0.1, 0.2, "better"),
        (1e-9, 0.2, "no difference shown"),
        (-0.1, 0.2, "no difference shown"),
        (-0.1, -1e-9, "no difference shown"),
        (-0.2, -0.1, "worse"),
    ],
)
def test_verdict_requires_an_interval_without_zero(low: float, high: float, word: str) -> None:
    assert verdict_word(Interval(mean=0.0, low=low, high=high, count=9)) == word
    assert verdict_word(None) == "no difference shown"


def test_wins_ties_and_losses_ignore_rounding() -> None:
    ours = {"a": 1.0, "b": 0.0, "c": 0.5, "d": 0.5, "e": 0.5, "f": 1.0}
    baseline = {"a": 0.0, "b": 1.0, "c": 0.5 + 5e-10, "d": 0.5 - 5e-10, "e": 0.5, "f": 0.0}
    result = compare(ours, baseline)
    assert (result.wins, result.ties, result.losses, result.against) == (2, 3, 1, "")
    better = compare({str(n): 1.0 for n in range(6)}, {str(n): 0.5 for n in range(6)})
    assert (better.word, better.p) == ("better", 2 / 64)
