"""Win rates of checkpoints from pairwise judgements, and one Bradley–Terry scale of them all. Pure.

A judge's scores are relative to their group, so their mean cannot rise however much is learned. Two
checkpoints are compared by letting the judge rank their rollouts of the same scenario: win 1, tie
½, loss 0.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from engine.protocol.records.runs import Interval
from engine.reward.advantage.group import TIE

Z = 1.959964
"""Two-sided 95 % quantile of the standard normal distribution."""
PRIOR_STD = 3.0
"""Standard deviation of the prior of a log-odds rating: a checkpoint that wins every comparison
gets a finite rating. Its pull is below that of a tenth of one comparison."""
NEWTON_STEPS = 50
LONGEST_MOVE = 2.0
"""Largest change of a rating in one step; longer Newton steps may overshoot without end."""
CONVERGED = 1e-10


class Outcome(NamedTuple):
    """Result of one scenario between the checkpoints of two steps."""

    scenario_id: str
    step: int
    opponent: int
    score: float
    """1 if `step` won, 0.5 for a tie, 0 if `opponent` won; the mean over repeated rollouts."""


def pairwise_score(ours: Sequence[float], theirs: Sequence[float]) -> float | None:
    """Share of pairs that `ours` win, a tie counting half, from the judge's scores of rollouts that
    were ranked together; None if one side has no score (Mann & Whitney 1947, U / nm)."""
    pairs = [(one, other) for one in ours for other in theirs]
    if not pairs:
        return None
    won = [0.5 if abs(one - other) <= TIE else float(one > other) for one, other in pairs]
    return math.fsum(won) / len(won)


def ratings(outcomes_N: Sequence[Outcome], baseline: int = 0) -> dict[int, Interval]:
    """Probability that each step's checkpoint beats that of step `baseline`, with 95 % intervals,
    on one scale from all comparisons, also those among the others.

    Bradley & Terry 1952 (Biometrika 39:324): P(a beats b) = σ(θ_a − θ_b), with θ of the baseline 0;
    a tie counts as half a win. Maximum a posteriori by Newton's method. The variance is the larger
    of the inverse Hessian and the sandwich estimate clustered by scenario (Liang & Zeger 1986,
    Biometrika 73:13), since all comparisons of a scenario share the baseline's rollout."""
    steps = sorted({step for o in outcomes_N for step in (o.step, o.opponent)} - {baseline})
    place = {step: number for number, step in enumerate(steps)}
    theta = [0.0] * len(steps)
    for _ in range(NEWTON_STEPS):
        gradient, hessian = _derivatives(outcomes_N, place, theta)
        inverse = _inverse(hessian)
        move = [sum(a * b for a, b in zip(row, gradient, strict=True)) for row in inverse]
        longest = max(map(abs, move), default=0.0)
        share = min(1.0, LONGEST_MOVE / longest) if longest else 1.0
        theta = [value + share * change for value, change in zip(theta, move, strict=True)]
        if longest < CONVERGED:
            break
    variances = _variances(outcomes_N, place, theta)
    counts = {
        step: {o.scenario_id for o in outcomes_N if step in (o.step, o.opponent)} for step in steps
    }
    return {
        step: Interval(
            mean=_sigmoid(theta[n]),
            low=_sigmoid(theta[n] - Z * math.sqrt(variances[n])),
            high=_sigmoid(theta[n] + Z * math.sqrt(variances[n])),
            count=len(counts[step]),
        )
        for step, n in place.items()
    }


def _derivatives(
    outcomes_N: Sequence[Outcome], place: Mapping[int, int], theta_K: Sequence[float]
) -> tuple[list[float], list[list[float]]]:
    """Gradient and negative Hessian of the log posterior."""
    precision = PRIOR_STD**-2
    gradient = [-precision * value for value in theta_K]
    hessian = [[precision * (n == m) for m in range(len(theta_K))] for n in range(len(theta_K))]
    for outcome in outcomes_N:
        signs = _signs(outcome, place)
        chance = _sigmoid(sum(sign * theta_K[n] for n, sign in signs.items()))
        for n, sign in signs.items():
            gradient[n] += sign * (outcome.score - chance)
            for m, other in signs.items():
                hessian[n][m] += sign * other * chance * (1 - chance)
    return gradient, hessian


def _variances(
    outcomes_N: Sequence[Outcome], place: Mapping[int, int], theta_K: Sequence[float]
) -> list[float]:
    _, hessian = _derivatives(outcomes_N, place, theta_K)
    inverse = _inverse(hessian)
    clusters: dict[str, list[float]] = {}
    for outcome in outcomes_N:
        signs = _signs(outcome, place)
        chance = _sigmoid(sum(sign * theta_K[n] for n, sign in signs.items()))
        gradient = clusters.setdefault(outcome.scenario_id, [0.0] * len(theta_K))
        for n, sign in signs.items():
            gradient[n] += sign * (outcome.score - chance)
    count = len(clusters)
    correction = count / (count - 1) if count > 1 else 1.0
    found = []
    for n, row in enumerate(inverse):
        projected = [
            sum(a * b for a, b in zip(row, gradient, strict=True)) for gradient in clusters.values()
        ]
        found.append(max(row[n], correction * sum(value * value for value in projected)))
    return found


def _signs(outcome: Outcome, place: Mapping[int, int]) -> dict[int, float]:
    """Coefficients of the ratings in the log-odds of an outcome; the baseline has none."""
    signs = {place[outcome.step]: 1.0} if outcome.step in place else {}
    if outcome.opponent in place:
        signs[place[outcome.opponent]] = signs.get(place[outcome.opponent], 0.0) - 1.0
    return signs


def _inverse(matrix_KK: Sequence[Sequence[float]]) -> list[list[float]]:
    """Inverse of a symmetric positive definite matrix, whose pivots are never 0 (Gauss–Jordan)."""
    size = len(matrix_KK)
    rows = [[*row, *(float(n == m) for m in range(size))] for n, row in enumerate(matrix_KK)]
    for n in range(size):
        pivot = rows[n][n]
        rows[n] = [value / pivot for value in rows[n]]
        for m in range(size):
            if m != n and rows[m][n]:
                factor = rows[m][n]
                rows[m] = [a - factor * b for a, b in zip(rows[m], rows[n], strict=True)]
    return [row[size:] for row in rows]


def _sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value)) if value >= 0 else math.exp(value) / (1 + math.exp(value))
