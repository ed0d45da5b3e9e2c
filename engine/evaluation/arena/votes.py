"""Votes → who is preferred. Pure."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import combinations

from engine.protocol.records.labels import Label
from engine.protocol.records.runs import Interval
from engine.protocol.requests.arena import Duel

Z = 1.959963984540054
"""Quantile of the normal distribution for 95 %."""


def duels(labels: Iterable[Label], names: Mapping[str, str]) -> list[Duel]:
    """Votes per pair of models, most votes first. `names` gives the model of each trajectory; an
    order of several counts as one vote for each pair in it."""
    counts: dict[tuple[str, str], Counter[str]] = {}
    for label in labels:
        if not label.holds():
            continue
        for word in label.words:
            if word.kind == "order":
                _count(word.order, names, counts)
    return [
        Duel(
            name=first,
            against=second,
            wins=count["first"],
            ties=count["tie"],
            losses=count["second"],
            share=wilson(count["first"] + count["tie"] / 2, count.total()),
        )
        for (first, second), count in sorted(counts.items(), key=lambda item: -item[1].total())
    ]


def wilson(wins: float, votes: int) -> Interval:
    """Wilson's score interval of a share (1927); `votes` is at least 1."""
    share = wins / votes
    scale = 1 + Z**2 / votes
    middle = (share + Z**2 / (2 * votes)) / scale
    half = Z * math.sqrt(share * (1 - share) / votes + Z**2 / (4 * votes**2)) / scale
    low, high = max(0.0, middle - half), min(1.0, middle + half)
    return Interval(mean=share, low=low, high=high, count=votes)


def _count(
    order: Iterable[Iterable[str]],
    names: Mapping[str, str],
    counts: dict[tuple[str, str], Counter[str]],
) -> None:
    placed = [
        (rank, names[one]) for rank, layer in enumerate(order) for one in layer if one in names
    ]
    for (rank, one), (other_rank, other) in combinations(placed, 2):
        if one == other:
            continue
        pair = (min(one, other), max(one, other))
        higher = "first" if one == pair[0] else "second"  # of two, the earlier of `placed`
        outcome = "tie" if rank == other_rank else higher
        counts.setdefault(pair, Counter())[outcome] += 1
