"""Agreement of two sets of scores for the same n trajectories. Pure.

Trajectories are compared only where both sides have a score.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import combinations

TIE = 1e-9


def kendall_tau(one: Sequence[float], other: Sequence[float]) -> float | None:
    """τ-b in [−1, 1] of two lists of scores for the same trajectories (Kendall 1945): (concordant −
    discordant) / √((P − ties₁)(P − ties₂)) over the P pairs. Both sides all tied: 1. One side all
    tied: 0. Fewer than two scores: None."""
    pairs = list(combinations(range(len(one)), 2))
    if not pairs:
        return None
    signs = [(order_of(one[i], one[j]), order_of(other[i], other[j])) for i, j in pairs]
    ordered_one = sum(a != 0 for a, _ in signs)
    ordered_other = sum(b != 0 for _, b in signs)
    if not (ordered_one and ordered_other):
        return 1.0 if ordered_one == ordered_other else 0.0
    return sum(a * b for a, b in signs) / math.sqrt(ordered_one * ordered_other)


def tau_of(one: Mapping[str, float], other: Mapping[str, float]) -> float | None:
    """τ-b of two judges (scores by trajectory id) over the trajectories that both have scored."""
    both = [name for name in one if name in other]
    return kendall_tau([one[name] for name in both], [other[name] for name in both])


def majority(scores_J: Sequence[Mapping[str, float]], names: Sequence[str]) -> dict[str, float]:
    """Copeland score in [0, 1] of each trajectory in `names`: share of the others that a majority
    of judges ranks lower, ties as halves. Trajectories without any score are left out."""
    scored = [name for name in names if any(name in scores for scores in scores_J)]
    if len(scored) < 2:
        return dict.fromkeys(scored, 0.5)
    won = dict.fromkeys(scored, 0.0)
    for one, other in combinations(scored, 2):
        balance = sum(
            order_of(scores[one], scores[other])
            for scores in scores_J
            if one in scores and other in scores
        )
        won[one] += (1 + order_of(balance, 0)) / 2
        won[other] += (1 - order_of(balance, 0)) / 2
    return {name: wins / (len(scored) - 1) for name, wins in won.items()}


def order_of(one: float, other: float) -> int:
    """1 if the first score is higher than the second, −1 if it is lower, 0 for a tie."""
    return 0 if abs(one - other) <= TIE else 1 if one > other else -1
