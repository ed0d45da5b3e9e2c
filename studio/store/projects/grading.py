"""Which group a person should grade next, and what came of it. Pure."""

import random
from collections.abc import Sequence

from engine.protocol.records.labels import Label
from engine.protocol.records.runs import GroupSummary, Split

Place = tuple[Split, int, int]

REPEAT_EVERY = 4
"""Of so many groups, one is shown a second time: that measures the person."""
WANTED = 20
"""Blindly graded groups from which on an agreement says something."""


def graded(labels: Sequence[Label]) -> list[Place]:
    """Groups that were graded blind, each once, oldest first."""
    blind = [label for label in labels if label.blind and label.holds()]
    return list(dict.fromkeys((label.split, label.step, label.group) for label in blind))


def next_group(
    groups: Sequence[GroupSummary], labels: Sequence[Label], chance: random.Random
) -> Place | None:
    """One that nobody has graded, with something to tell apart; every now and then one that was
    graded before, once. None when there is nothing left."""
    done = graded(labels)
    looks = [(la.split, la.step, la.group) for la in labels if la.blind and la.holds()]
    once = [place for place in done if looks.count(place) == 1]
    repeat_due = len(looks) % REPEAT_EVERY == REPEAT_EVERY - 1
    if repeat_due and len(once) > 1:
        return once[0]  # the one that is longest ago
    fresh = [g for g in groups if (g.split, g.step, g.group) not in done]
    telling = [g for g in fresh if g.signal and sum(r is not None for r in g.rewards) > 1]
    if not (telling or fresh):
        return once[0] if once else None
    chosen = chance.choice(telling or fresh)
    return (chosen.split, chosen.step, chosen.group)


def half_width(groups: int, now: float, wanted: int) -> float:
    """About how narrow the interval of the agreement gets with `wanted` groups more: it shrinks
    with the square root of their number."""
    return float(now * (groups / max(1, groups + wanted)) ** 0.5)
