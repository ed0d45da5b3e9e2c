"""Win rates and the Bradley–Terry scale: planted effects are recovered, equal models cover 50 %."""

import math
import random
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest

from engine.evaluation.win_rate import Outcome, pairwise_score, ratings

RUNS = 200


@pytest.mark.parametrize(
    ("ours", "theirs", "score"),
    [
        ([0.9], [0.1], 1.0),
        ([0.1], [0.9], 0.0),
        ([0.5], [0.5], 0.5),
        ([0.5 + 1e-12], [0.5], 0.5),
        ([0.9, 0.1], [0.5], 0.5),
        ([0.9, 0.5], [0.5, 0.1], 0.875),
        ([], [0.5], None),
        ([0.5], [], None),
    ],
)
def test_pairwise_score_is_the_share_of_pairs_won(
    ours: list[float], theirs: list[float], score: float | None
) -> None:
    assert pairwise_score(ours, theirs) == score


def versus(step: int, opponent: int, scores: list[float]) -> list[Outcome]:
    return [Outcome(f"s{n}", step, opponent, score) for n, score in enumerate(scores)]


def test_rating_of_one_opponent_is_the_share_won() -> None:
    rate = ratings(versus(5, 0, [1.0] * 30 + [0.5] * 10 + [0.0] * 20))[5]
    assert rate.mean == pytest.approx(35 / 60, abs=0.002)
    assert rate.low < 0.5 < rate.high
    assert rate.count == 60


def test_unbeaten_checkpoint_has_a_finite_rating_and_an_interval() -> None:
    rate = ratings(versus(5, 0, [1.0] * 8))[5]
    assert 0.9 < rate.mean < 1
    assert 0.4 < rate.low < rate.mean < rate.high < 1


def test_scale_uses_indirect_comparisons() -> None:
    """Step 10 was compared only with step 5, which beat the baseline."""
    rates = ratings(versus(5, 0, [1.0] * 14 + [0.0] * 6) + versus(10, 5, [1.0] * 14 + [0.0] * 6))
    odds = 14 / 6
    assert rates[5].mean == pytest.approx(odds / (1 + odds), abs=0.03)
    assert rates[10].mean == pytest.approx(odds**2 / (1 + odds**2), abs=0.05)
    assert rates[10].high - rates[10].low > rates[5].high - rates[5].low


def test_no_outcomes_give_no_ratings() -> None:
    assert ratings([]) == {}


def coverage(count: int, truth: float, score: Callable[[random.Random], float]) -> float:
    """Share of simulated validations whose interval contains the true win rate."""
    chance = random.Random(count)
    covered = 0
    for _ in range(RUNS):
        rate = ratings(versus(10, 0, [score(chance) for _ in range(count)]))[10]
        covered += rate.low <= truth <= rate.high
    return covered / RUNS


def first_place_wins(chance: random.Random) -> float:
    """Judge that always prefers what it reads first, with the order shuffled."""
    order = [0, 1]
    chance.shuffle(order)
    scores = {order[0]: 0.9, order[1]: 0.2}
    score = pairwise_score([scores[0]], [scores[1]])
    assert score is not None
    return score


@pytest.mark.parametrize("count", [8, 20, 60])
def test_interval_of_equal_policies_covers_50_percent_under_a_position_biased_judge(
    count: int,
) -> None:
    share = coverage(count, 0.5, first_place_wins)
    print(f"{count} scenarios: the interval covers 50 % in {share:.1%}")
    assert share >= 0.91  # 0.95 less two and a half standard errors


@pytest.mark.parametrize("planted", [0.6, 0.75, 0.9])
def test_planted_improvement_is_within_the_interval(planted: float) -> None:
    share = coverage(40, planted, lambda chance: float(chance.random() < planted))
    print(f"planted {planted:.0%}: within the interval in {share:.1%}")
    assert share >= 0.91


def test_shared_scenarios_widen_the_interval() -> None:
    """Comparisons of one scenario are not independent: repeated ones add no certainty."""
    scores = [1.0] * 24 + [0.0] * 16
    once = ratings(versus(5, 0, scores))[5]
    repeated = ratings(versus(5, 0, scores) * 4)[5]
    assert repeated.high - repeated.low == pytest.approx(once.high - once.low, rel=0.1)
    independent = once.mean * (1 - once.mean) / math.sqrt(160)
    assert repeated.high - repeated.low > 3 * independent


def reference(outcomes: list[Outcome], steps: list[int]) -> dict[int, tuple[float, float, float]]:
    """Mean, low and high by numpy, with gradient descent in place of Newton's method."""
    x_NK = np.array(
        [[(o.step == step) - (o.opponent == step) for step in steps] for o in outcomes], float
    )
    y_N = np.array([o.score for o in outcomes])
    theta_K = np.zeros(len(steps))
    for _ in range(20_000):
        p_N = 1 / (1 + np.exp(-x_NK @ theta_K))
        theta_K += 0.02 * (x_NK.T @ (y_N - p_N) - theta_K / 9)
    weights_N = p_N * (1 - p_N)
    inverse = np.linalg.inv(x_NK.T @ (weights_N[:, None] * x_NK) + np.eye(len(steps)) / 9)
    scores_NK = x_NK * (y_N - p_N)[:, None]
    names = sorted({o.scenario_id for o in outcomes})
    sums = np.array(
        [
            sum(s for s, o in zip(scores_NK, outcomes, strict=True) if o.scenario_id == n)
            for n in names
        ]
    )
    meat = sums.T @ sums * len(names) / (len(names) - 1)
    variance_K = np.maximum(np.diag(inverse), np.diag(inverse @ meat @ inverse))
    ends = [theta_K + sign * 1.959964 * np.sqrt(variance_K) for sign in (0, -1, 1)]
    rates = 1 / (1 + np.exp(-np.array(ends)))
    return {step: tuple(rates[:, n].tolist()) for n, step in enumerate(steps)}  # type: ignore[misc]


def test_ratings_match_an_independent_computation() -> None:
    chance = random.Random(4)
    outcomes = [
        Outcome(f"s{n}", step, opponent, chance.choice([0.0, 0.5, 1.0, 1.0]))
        for step, opponent in ((10, 3), (20, 3), (20, 10), (30, 3), (30, 20))
        for n in range(12)
    ]
    outcomes += [Outcome("s0", 30, 3, 1.0)] * 9  # one scenario that counts often
    found = ratings(outcomes, baseline=3)
    assert list(found) == [10, 20, 30]
    for step, expected in reference(outcomes, [10, 20, 30]).items():
        rate = found[step]
        assert (rate.mean, rate.low, rate.high) == pytest.approx(expected, abs=1e-6)
        assert rate.count == 12


def test_extreme_results_converge() -> None:
    """A chain of unbeaten checkpoints, the last of which loses to the baseline."""
    steps = [0, 5, 10, 15, 20]
    outcomes = [
        outcome
        for before, after in pairwise(steps)
        for outcome in versus(after, before, [1.0] * 200)
    ]
    outcomes += versus(20, 0, [0.0] * 5)
    for step, expected in reference(outcomes, steps[1:]).items():
        rate = ratings(outcomes)[step]
        assert (rate.mean, rate.low, rate.high) == pytest.approx(expected, abs=1e-4)


def test_one_scenario_gives_a_rating() -> None:
    rate = ratings([Outcome("s", 5, 0, 1.0)])[5]
    assert rate.count == 1
    assert 0.5 < rate.mean < 1
    assert rate.low < 0.5
