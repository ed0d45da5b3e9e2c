"""Ranking of groups by how much a person's label of them teaches. Pure.

A label teaches most where the sources of the reward contradict each other (query by committee:
Seung, Opper and Sompolinsky 1992), where one of them is uncertain (uncertainty sampling: Lewis and
Gale 1994), and where the update depends on the group. Each reason has a strength s in [0, 1] and a
weight w; the value of a group is Σ w·s / Σ w over the reasons that count.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from typing import NamedTuple

from engine.judge.calibration.agreement import TIE
from engine.protocol.records.runs import Split
from engine.protocol.requests.review import ReviewItem, ReviewReason

WEIGHTS: dict[ReviewReason, float] = {
    "unscored": 1.0,
    "judge_passes": 1.0,
    "judge_models": 1.0,
    "judge_and_rules": 0.8,
    "spread": 0.6,
    "near_tie": 0.6,
    "advantage": 0.4,
}
"""Weight of each reason."""
NEAR = 0.1
"""Near-tie: maximum gap between the best two, as a share of the range of the group's scores."""
WIDE = 0.5
"""Range of one trajectory's scores over the judge passes at which the spread has full strength."""
Scores = Mapping[int, float]
"""Scores by index of the trajectory."""


class Reviewed(NamedTuple):
    """Trajectory of a candidate group."""

    idx: int
    """Index within its group, from 0."""
    turns: int
    tokens: int
    judge: float | None
    """Score of the judge, as it entered the reward; None without one."""
    rules: float | None
    """Weighted sum of the reward parts that are not the judge's; None without any."""
    may_be_scored: bool = True
    """Whether the rollout itself succeeded, so that a label can score it."""


@dataclass(frozen=True)
class Candidate:
    """Group that may be labelled. `rewards` and `advantages` are by index."""

    split: Split
    step: int
    group: int
    title: str
    rewards: Sequence[float | None]
    advantages: Sequence[float | None]
    trajectories: Sequence[Reviewed] = ()
    scores: Mapping[str, Scores] = field(default_factory=dict)
    """Judge model → its scores."""
    passes: Mapping[str, Mapping[int, Sequence[float]]] = field(default_factory=dict)
    """Judge model → scores of its passes, in order, by index."""


class Finding(NamedTuple):
    """Strength of a reason in [0, 1], and its sentence."""

    strength: float
    words: str


def rank_groups(
    candidates: Iterable[Candidate], reasons: Collection[ReviewReason] = ()
) -> list[ReviewItem]:
    """Return the groups with a reason to label them, highest value first, then the newest step,
    then the lowest group number. `reasons` restricts those that count; empty: all. Groups whose
    rewards are all equal are left out, as are groups of one trajectory."""
    possible = [one for one in candidates if _can_teach(one)]
    largest = max((_largest(one) for one in possible), default=0.0)
    counted = [name for name in WEIGHTS if not reasons or name in reasons]
    items = []
    for one in possible:
        found = {
            name: finding
            for name, finding in _findings(one, largest).items()
            if name in counted and finding.strength > 0
        }
        if found:
            items.append(_item(one, found, counted))
    return sorted(items, key=lambda item: (-item.value, -item.step, item.split, item.group))


def reversed_pairs(one: Scores, other: Scores) -> tuple[int, int]:
    """Return (reversed pairs, compared pairs) of trajectories that both sides have scored; a tie on
    either side, up to rounding, is compared but not reversed."""
    both = [(score, other[index]) for index, score in one.items() if index in other]
    turned = [0 for (a, b), (c, d) in combinations(both, 2) if (a - c) * (b - d) < -TIE]
    return len(turned), len(both) * (len(both) - 1) // 2


def _can_teach(one: Candidate) -> bool:
    known = [reward for reward in one.rewards if reward is not None]
    if known:
        return max(known) > min(known)
    return sum(trajectory.may_be_scored for trajectory in one.trajectories) > 1


def _item(
    one: Candidate, found: Mapping[ReviewReason, Finding], counted: Collection[ReviewReason]
) -> ReviewItem:
    parts = {name: WEIGHTS[name] * finding.strength for name, finding in found.items()}
    reason = max(parts, key=lambda name: parts[name])  # of equal ones the first in WEIGHTS
    return ReviewItem(
        split=one.split,
        step=one.step,
        group=one.group,
        title=one.title,
        value=sum(parts.values()) / sum(WEIGHTS[name] for name in counted),
        reason=reason,
        words=found[reason].words,
        strengths={name: finding.strength for name, finding in found.items()},
    )


def _findings(one: Candidate, largest: float) -> dict[ReviewReason, Finding]:
    """All reasons of a group; `largest` is the largest absolute advantage of all candidates."""
    if all(reward is None for reward in one.rewards):
        words = "No trajectory has a reward: your label is the only signal."
        return {"unscored": Finding(1.0, words)}
    return {
        "judge_passes": _between_passes(one),
        "judge_models": _between_judges(one),
        "judge_and_rules": _judge_and_rules(one),
        "spread": _spread(one),
        "near_tie": _near_tie(one),
        "advantage": _advantage(one, largest),
    }


def _between_passes(one: Candidate) -> Finding:
    counts = []
    for passes in one.passes.values():
        lengths = {len(scores) for scores in passes.values()}
        if len(lengths) != 1:  # a pass lacks a trajectory: its scores cannot be aligned
            continue
        number = lengths.pop()
        columns = [{index: scores[k] for index, scores in passes.items()} for k in range(number)]
        counts += [reversed_pairs(a, b) for a, b in pairwise(columns)]
    return _reversed(counts, "The passes of the judge rank {} of {} differently.")


def _between_judges(one: Candidate) -> Finding:
    counts = [reversed_pairs(a, b) for a, b in combinations(one.scores.values(), 2)]
    return _reversed(counts, "The judge models rank {} of {} differently.")


def _judge_and_rules(one: Candidate) -> Finding:
    judge = {t.idx: t.judge for t in one.trajectories if t.judge is not None}
    rules = {t.idx: t.rules for t in one.trajectories if t.rules is not None}
    return _reversed([reversed_pairs(judge, rules)], "Judge and rules rank {} of {} differently.")


def _reversed(counts: Sequence[tuple[int, int]], words: str) -> Finding:
    """Twice the share of reversed pairs, at most 1: a random order reverses half of them."""
    turned, compared = sum(a for a, _ in counts), sum(b for _, b in counts)
    if not turned:
        return Finding(0.0, "")
    pairs = f"{compared} pair" if compared == 1 else f"{compared} pairs"
    return Finding(min(1.0, 2 * turned / compared), words.format(turned, pairs))


def _spread(one: Candidate) -> Finding:
    """Mean range of a trajectory's scores over the judge passes, as a share of `WIDE`."""
    ranges = [
        max(scores) - min(scores)
        for passes in one.passes.values()
        for scores in passes.values()
        if len(scores) > 1
    ]
    if not ranges or max(ranges) <= 0:
        return Finding(0.0, "")
    mean = sum(ranges) / len(ranges)
    words = f"The judge scores of one trajectory differ by up to {max(ranges):.2f} between passes."
    return Finding(min(1.0, mean / WIDE), words)


def _near_tie(one: Candidate) -> Finding:
    """1 − gap / `NEAR` of the best two, the gap being a share of the range of the group's judge
    scores, or else rewards. Of equal scores with equal turns and tokens, only one counts."""
    judged = sum(t.judge is not None for t in one.trajectories) > 1
    kinds = {t.idx: (t.turns, t.tokens, 0 if t.tokens else t.idx) for t in one.trajectories}
    values = {
        (score, kinds.get(index))
        for index, score in (
            ((t.idx, t.judge) for t in one.trajectories) if judged else enumerate(one.rewards)
        )
        if score is not None
    }
    best = sorted((score for score, _ in values), reverse=True)
    if len(best) < 3 or best[0] <= best[-1]:
        return Finding(0.0, "")
    gap = best[0] - best[1]
    strength = 1 - gap / (best[0] - best[-1]) / NEAR
    scores = "judge scores" if judged else "rewards"
    by = f"differ by only {gap:.2g}" if gap else "are equal"
    return Finding(max(0.0, strength), f"The two highest {scores} {by}.")


def _advantage(one: Candidate, largest: float) -> Finding:
    value = _largest(one)
    if value <= 0:
        return Finding(0.0, "")
    words = f"Advantages reach {value:.2f}: this group contributes much to its update."
    return Finding(value / largest, words)


def _largest(one: Candidate) -> float:
    return max((abs(value) for value in one.advantages if value is not None), default=0.0)
