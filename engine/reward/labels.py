"""Labels → scores of one group. Pure.

A score replaces the judge's. Siblings without one pass through the run's monotone map from judge to
person, so that a lenient person does not bias the baseline of the group. Then orders move the
scores to the nearest ones that obey them.
"""

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from engine.protocol.labels import Label

GAP = 0.05
"""What lies at least between two attempts of which a person says that one is better."""
LEAST_PAIRS = 10
"""Labelled scores from which on the map from judge to person is fitted."""


class Labelled(NamedTuple):
    """What labels make of a group."""

    scores: dict[str, float | None]
    """By trajectory; None where nobody has scored it."""
    vetoed: frozenset[str]
    excluded: frozenset[str]


def isotonic(values: Sequence[float], weights: Sequence[float] | None = None) -> list[float]:
    """The non-decreasing sequence nearest to `values` in (weighted) least squares: pool adjacent
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
    """A monotone map of scores, fitted to pairs of (judge, person); identity while they are few."""

    def __init__(self, pairs: Iterable[tuple[float, float]]) -> None:
        by_judge: dict[float, list[float]] = {}
        for judge, person in pairs:
            by_judge.setdefault(judge, []).append(person)
        self.count = sum(map(len, by_judge.values()))
        self._judge = sorted(by_judge)
        means = [math.fsum(by_judge[x]) / len(by_judge[x]) for x in self._judge]
        masses = [float(len(by_judge[x])) for x in self._judge]
        self._person = isotonic(means, masses) if self.count >= LEAST_PAIRS else []

    def __call__(self, score: float) -> float:
        """Straight between the fitted points, level beyond them."""
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


def apply_labels(
    scores: Mapping[str, float | None], labels: Sequence[Label], to_person: JudgeToPerson
) -> Labelled:
    """What holds after all labels that are not undone: scores first, a later one of the same
    attempt in place of an earlier one; then the orders in turn."""
    held = [label for label in labels if not label.undone]
    given = {
        label.trajectory_id: label.value
        for label in held
        if label.kind == "score" and label.trajectory_id and label.value is not None
    }
    found: dict[str, float | None] = {}
    for name, score in scores.items():
        mapped = to_person(score) if given and score is not None else score
        found[name] = given.get(name, mapped)
    for label in held:
        if label.kind == "order":
            found |= obeying(found, label.order)
        elif label.kind == "best" and label.trajectory_id in found:
            found |= lifted(found, label.trajectory_id)
        elif label.kind == "worst" and label.trajectory_id in found:
            found |= sunk(found, label.trajectory_id)
    return Labelled(
        found,
        vetoed=frozenset(la.trajectory_id for la in held if la.kind == "veto" and la.trajectory_id),
        excluded=frozenset(
            la.trajectory_id for la in held if la.kind == "exclude" and la.trajectory_id
        ),
    )


def obeying(
    scores: Mapping[str, float | None], layers: Sequence[Sequence[str]]
) -> dict[str, float]:
    """The scores nearest to these, in least squares, with every layer `GAP` above the next and
    equal within itself. Unscored ones take the place that the order gives them."""
    known = {name: score for name, score in scores.items() if score is not None}
    levels: list[float] = []
    masses: list[float] = []
    for layer in reversed(layers):  # worst first, so that it must not decrease
        seen = [known[name] for name in layer if name in known]
        before = levels[-1] if levels else 0.5
        levels.append(math.fsum(seen) / len(seen) if seen else before)
        masses.append(float(len(seen)) or 1e-6)
    gap = min(GAP, 1 / max(len(layers) - 1, 1))
    flat = isotonic([x - gap * i for i, x in enumerate(levels)], masses)
    raised = [x + gap * i for i, x in enumerate(flat)]
    low, high = min(raised), max(raised)
    shift = max(0.0, -low) - max(0.0, high - 1)
    settled = [min(1.0, max(0.0, x + shift)) for x in raised]
    return {
        name: level
        for layer, level in zip(reversed(layers), settled, strict=True)
        for name in layer
    }


def lifted(scores: Mapping[str, float | None], best: str) -> dict[str, float]:
    """The scores nearest to these with `best` at least `GAP` above every sibling: those that are
    too high come down, and `best` goes up, by equal shares."""
    others = {n: s for n, s in scores.items() if s is not None and n != best}
    if not others:
        return {}
    own = scores.get(best)
    pool = [own - GAP] if own is not None else []
    lowered: list[str] = []
    for name in sorted(others, key=lambda n: -others[n]):
        if pool and others[name] <= math.fsum(pool) / len(pool):
            break
        if own is None and lowered:
            break  # nobody has scored the best: above the highest is enough
        pool.append(others[name])
        lowered.append(name)
    level = min(max(math.fsum(pool) / len(pool), 0.0), 1 - GAP)
    return {name: min(others[name], level) for name in others} | {best: level + GAP}


def sunk(scores: Mapping[str, float | None], worst: str) -> dict[str, float]:
    """The mirror image: `worst` at least `GAP` below every sibling."""
    mirrored = {name: None if s is None else 1 - s for name, s in scores.items()}
    return {name: 1 - score for name, score in lifted(mirrored, worst).items()}
