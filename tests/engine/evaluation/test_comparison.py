"""Differences, their intervals and p: exact where they can be, and right where models are equal."""

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


def test_only_scenarios_of_both_count() -> None:
    found = compare({"a": 1.0, "b": 1.0, "c": 0.5}, {"b": 0.5, "c": 0.5, "d": 1.0}, "base")
    assert found.difference is not None
    assert found.difference.count == 2
    assert found.difference.mean == 0.25
    assert (found.wins, found.ties, found.losses) == (1, 1, 0)
    assert found.against == "base"
    nobody = compare({"a": 1.0}, {"b": 1.0})
    assert (nobody.difference, nobody.p, nobody.word) == (None, None, "no difference shown")


def test_equal_attempts_differ_by_nothing() -> None:
    rewards = {f"s{n}": n / 7 for n in range(30)}
    found = compare(rewards, rewards)
    assert found.difference is not None
    assert (found.difference.mean, found.difference.low, found.difference.high) == (0, 0, 0)
    assert (found.p, found.ties, found.word) == (1.0, 30, "no difference shown")


@pytest.mark.parametrize("count", [6, 8, 11])
def test_p_is_that_of_all_sign_flips(count: int) -> None:
    chance = random.Random(count)
    differences = [chance.gauss(0.4, 1) for _ in range(count)]
    observed = abs(math.fsum(differences))
    flips = list(itertools.product((-1, 1), repeat=count))
    sums = [abs(sum(s * d for s, d in zip(flip, differences, strict=True))) for flip in flips]
    expected = sum(value >= observed - 1e-12 for value in sums) / len(flips)
    assert difference_of(differences)[1] == pytest.approx(expected)


@pytest.mark.parametrize("count", [6, 8, 10])
def test_equal_contestants_are_told_apart_in_at_most_one_of_twenty_cases(count: int) -> None:
    """Exactly, whatever the sizes of the differences: over all signs that they can have."""
    chance = random.Random(count)
    for sizes in ([chance.expovariate(1) for _ in range(count)], [1.0] * (count - 3) + [0.0] * 3):
        wrong = 0
        for flip in itertools.product((-1, 1), repeat=count):
            low, high = ours([s * d for s, d in zip(flip, sizes, strict=True)])
            wrong += not low - 1e-9 <= 0 <= high + 1e-9
        assert wrong / 2**count <= 0.05


def test_interval_p_and_word_never_contradict_each_other() -> None:
    chance = random.Random(1)
    words = set()
    for _ in range(120):
        count, shift = chance.choice((3, 6, 9, 14, 30)), chance.choice((0, 0, 0.5, -0.8))
        theirs = {str(n): chance.choice((0.0, 0.5, 1.0)) for n in range(count)}
        mine = {name: value + shift + chance.gauss(0, 0.7) for name, value in theirs.items()}
        found = compare(mine, theirs)
        assert found.difference is not None
        assert found.p is not None
        holds_0 = found.difference.low <= 1e-9 and found.difference.high >= -1e-9
        assert holds_0 == (found.p > 0.05) == (found.word == "no difference shown")
        assert found.difference.low <= found.difference.mean <= found.difference.high
        words.add(found.word)
    assert words == {"better", "worse", "no difference shown"}


def test_too_few_scenarios_show_nothing() -> None:
    found, p = difference_of([0.5] * (LEAST - 1))
    assert found is not None
    assert (found.low, found.high, found.mean) == (0.0, 0.5, 0.5)
    assert p == pytest.approx(2 / 2**5)
    enough, p = difference_of([0.5] * LEAST)
    assert enough is not None
    assert enough.low == 0.5
    assert p == pytest.approx(2 / 2**6)


@pytest.mark.parametrize("count", [20, 50, 100])
def test_the_interval_of_equal_models_holds_zero(count: int) -> None:
    """0/1 rewards: at least 95 of 100 seeds, since ties make the test careful."""
    case = next(case for case in CASES if case.draw is pass_or_fail)
    assert held(case, count, 100, ours) >= 95


def test_the_interval_of_equal_models_holds_zero_with_continuous_rewards() -> None:
    """It is exact, so of 100 seeds 95 are expected, give or take 2.2: all 300 are looked at."""
    case = next(case for case in CASES if case.draw is continuous)
    counts = [held(case, count, 100, ours) for count in (20, 35, 50)]
    assert sum(counts) >= 0.95 * 300 - 2 * math.sqrt(300 * 0.95 * 0.05), counts


def test_many_subsets_are_drawn_the_same_each_time() -> None:
    values = [float(n % 5) for n in range(40)]
    assert subset_means(values) == subset_means(values)
    assert len(subset_means(values)) == 7999
    assert len(subset_means(values[:7])) == 2**7 - 1


def means_of(values: list[float], subsets: list[int]) -> list[float]:
    """Sorted means of subsets that are given as bits."""
    chosen = [[v for n, v in enumerate(values) if bits >> n & 1] for bits in subsets]
    return sorted(math.fsum(some) / len(some) for some in chosen)


@pytest.mark.parametrize("count", [1, 3, MOST_EXACT])
def test_few_differences_have_all_their_subsets(count: int) -> None:
    values = [(n * 7 % 11) / 8 for n in range(count)]
    assert subset_means(values) == pytest.approx(means_of(values, list(range(1, 2**count))))


@pytest.mark.parametrize("count", [MOST_EXACT + 1, 16, 17, 30])
def test_many_differences_have_subsets_by_chance(count: int) -> None:
    values = [(n * 7 % 11) / 8 for n in range(count)]
    chance = random.Random(0)
    drawn = [bits for _ in range(SAMPLED + 99) if (bits := chance.getrandbits(count))]
    assert subset_means(values) == pytest.approx(means_of(values, drawn[:SAMPLED]))


@pytest.mark.parametrize(
    ("count", "place"), [(6, 0), (7, 2), (8, 5), (MOST_EXACT, 50), (MOST_EXACT + 3, 199)]
)
def test_ends_of_the_interval_are_order_statistics(count: int, place: int) -> None:
    """2.5 of 100 subset means are beyond each end: the first of 63, the sixth of 255."""
    values = [(n * 7 % 11) / 8 + n / 1000 for n in range(count)]
    means = subset_means(values)
    found, p = difference_of(values)
    assert found is not None
    assert (found.low, found.high) == (means[place], means[-place - 1])
    assert (found.mean, found.count) == (math.fsum(values) / count, count)
    assert p == pytest.approx(2 * (1 + sum(mean <= 1e-9 for mean in means)) / (len(means) + 1))


def test_the_interval_of_few_differences_is_their_range_and_zero() -> None:
    found, p = difference_of([0.5, -0.25, 1.0])
    assert found == Interval(mean=1.25 / 3, low=-0.25, high=1.0, count=3)
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
def test_the_word_needs_an_interval_without_zero(low: float, high: float, word: str) -> None:
    assert verdict_word(Interval(mean=0.0, low=low, high=high, count=9)) == word
    assert verdict_word(None) == "no difference shown"


def test_wins_losses_and_ties_are_counted_beyond_rounding() -> None:
    ours = {"a": 1.0, "b": 0.0, "c": 0.5, "d": 0.5, "e": 0.5, "f": 1.0}
    theirs = {"a": 0.0, "b": 1.0, "c": 0.5 + 5e-10, "d": 0.5 - 5e-10, "e": 0.5, "f": 0.0}
    found = compare(ours, theirs)
    assert (found.wins, found.ties, found.losses, found.against) == (2, 3, 1, "")
    better = compare({str(n): 1.0 for n in range(6)}, {str(n): 0.5 for n in range(6)})
    assert (better.word, better.p) == ("better", 2 / 64)
