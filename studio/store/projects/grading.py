"""Selection of the next group to label blind, and progress towards a reliable agreement. Free of
I/O."""

import random
from collections.abc import Sequence

from engine.protocol.records.labels import Label
from engine.protocol.records.runs import GroupSummary, Split

Place = tuple[Split, int, int]

REPEAT_EVERY = 4
"""Interval, in groups, at which a group is shown again to measure self-consistency."""
WANTED = 20
"""Number of blindly labelled groups from which an agreement is meaningful."""


def graded(labels: Sequence[Label]) -> list[Place]:
    """Return the groups labelled blind, each once, oldest first."""
    blind = [label for label in labels if label.blind and label.holds()]
    return list(dict.fromkeys((label.split, label.step, label.group) for label in blind))


def next_group(
    groups: Sequence[GroupSummary],
    labels: Sequence[Label],
    chance: random.Random,
    queue: Sequence[Place] = (),
) -> Place | None:
    """Select a group (split, step, number) for blind labelling, None if none is left: the first
    unlabelled one of `queue`, else a random one with different rewards, else a random unscored one.
    Each fourth time, or if none of these is left, it is the group labelled longest ago of those
    with one blind label. `chance` draws the random ones."""
    done = graded(labels)
    looks = [(la.split, la.step, la.group) for la in labels if la.blind and la.holds()]
    once = [place for place in done if looks.count(place) == 1]
    repeat_due = len(looks) % REPEAT_EVERY == REPEAT_EVERY - 1
    if repeat_due and len(once) > 1:
        return once[0]  # labelled longest ago
    if waiting := [place for place in queue if place not in done]:
        return waiting[0]
    fresh = [g for g in groups if (g.split, g.step, g.group) not in done]
    scored = [g for g in fresh if len({r for r in g.rewards if r is not None}) > 1]
    unscored = [g for g in fresh if len(g.rewards) > 1 and all(r is None for r in g.rewards)]
    if not (scored or unscored):
        return once[0] if once else None
    chosen = chance.choice(scored or unscored)
    return (chosen.split, chosen.step, chosen.group)


def half_width(groups: int, now: float, wanted: int) -> float:
    """Estimate the half width of the agreement's confidence interval after `wanted` more groups. It
    is `now` with `groups` groups and shrinks with the square root of their number."""
    return float(now * (groups / max(1, groups + wanted)) ** 0.5)
