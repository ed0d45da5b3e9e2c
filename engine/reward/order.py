"""Scores that satisfy a person's order labels. Pure functions.

Scores lie in a span [low, high]; a preferred trajectory gets a score at least `GAP` of the span
higher. The result is nearest in least squares, so scores that already satisfy the order stay.
"""

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

GAP = 0.05
"""Smallest gap between two trajectories of which a label prefers one, as a share of the span."""
LEAST_PAIRS = 10
"""Number of labelled scores from which the map from judge to person is fitted."""

Scores = Mapping[str, float | None]
"""Score by trajectory; None if unscored."""


class Span(NamedTuple):
    low: float = 0.0
    high: float = 1.0

    @property
    def gap(self) -> float:
        return GAP * (self.high - self.low)


UNIT = Span()


def isotonic(values: Sequence[float], weights: Sequence[float] | None = None) -> list[float]:
    """Non-decreasing sequence nearest to `values` in (weighted) least squares: pool adjacent
    violators (Barlow et al. 1972)."""
    pools: list[tuple[float, float, int]] = []
    for value, weight in zip(values, weights or [1.0] * len(values), strict=True):
        mean, mass, count = value, weight, 1
        while pools and pools[-1][0] >= mean:
            other, other_mass, other_count = pools.pop()
            mean = (mean * mass + other * other_mass) / (mass + other_mass)
            mass, count = mass + other_mass, count + other_count
        pools.append((mean, mass, count))
    return [mean for mean, _, count in pools for _ in range(count)]


class JudgeToPerson:
    """Monotone map of scores, fitted to (judge, person) pairs; the identity for few pairs."""

    def __init__(self, pairs: Iterable[tuple[float, float]]) -> None:
        by_judge: dict[float, list[float]] = {}
        for judge, person in pairs:
            by_judge.setdefault(judge, []).append(person)
        self.count = sum(map(len, by_judge.values()))
        self._judge = sorted(by_judge)
        means = [math.fsum(by_judge[x]) / len(by_judge[x]) for x in self._judge]
        masses = [float(len(by_judge[x])) for x in self._judge]
        self._person = isotonic(means, masses) if self.count >= LEAST_PAIRS else []

    @property
    def is_fitted(self) -> bool:
        return bool(self._person)

    def __call__(self, score: float) -> float:
        """Interpolate linearly between the fitted points, constant beyond them."""
        if not self._person:
            return score
        place = bisect_left(self._judge, score)
        if place == 0:
            return self._person[0]
        if place == len(self._judge):
            return self._person[-1]
        low, high = self._judge[place - 1], self._judge[place]
        share = (score - low) / (high - low)
        return self._person[place - 1] * (1 - share) + self._person[place] * share


def scores_in_order(
    scores: Scores, layers: Sequence[Sequence[str]], span: Span = UNIT
) -> dict[str, float]:
    """Scores nearest to `scores` such that each of `layers` (trajectory ids, best layer first) is
    at least a gap above the next, and equal within a layer. Unscored trajectories get the score of
    their layer. `span`: bounds of scores, with the gap."""
    known = {name: score for name, score in scores.items() if score is not None}
    levels: list[float] = []
    masses: list[float] = []
    for layer in reversed(layers):  # worst first, so that it must not decrease
        seen = [known[name] for name in layer if name in known]
        before = levels[-1] if levels else (span.low + span.high) / 2
        levels.append(math.fsum(seen) / len(seen) if seen else before)
        masses.append(float(len(seen)) or 1e-6)
    gap = min(span.gap, (span.high - span.low) / max(len(layers) - 1, 1))
    flat = isotonic([x - gap * i for i, x in enumerate(levels)], masses)
    highest = span.high - gap * (len(layers) - 1)  # clipped, it is the nearest within bounds
    return {
        name: min(max(x, span.low), highest) + gap * place
        for place, (layer, x) in enumerate(zip(reversed(layers), flat, strict=True))
        for name in layer
    }


def scores_with_best(scores: Scores, best: str, span: Span = UNIT) -> dict[str, float]:
    """Scores nearest to `scores` with trajectory `best` at least a gap above every other one:
    higher ones are lowered and `best` is raised, by equal shares. `span`: bounds of scores, with
    the gap."""
    gap = span.gap
    others = {n: s for n, s in scores.items() if s is not None and n != best}
    own = scores.get(best)
    if not others:
        return {best: span.high} if own is None else {}
    pool = [own - gap] if own is not None else []
    lowered: list[str] = []
    for name in sorted(others, key=lambda n: -others[n]):
        if pool and others[name] <= math.fsum(pool) / len(pool):
            break
        if own is None and lowered:
            break  # nobody has scored the best: above the highest is enough
        pool.append(others[name])
        lowered.append(name)
    level = min(max(math.fsum(pool) / len(pool), span.low), span.high - gap)
    return {name: min(others[name], level) for name in others} | {best: level + gap}


def scores_with_worst(scores: Scores, worst: str, span: Span = UNIT) -> dict[str, float]:
    """Scores nearest to `scores` with trajectory `worst` at least a gap below every other one.
    `span`: bounds of scores, with the gap."""
    total = span.low + span.high
    mirrored = {name: None if s is None else total - s for name, s in scores.items()}
    return {name: total - score for name, score in scores_with_best(mirrored, worst, span).items()}
