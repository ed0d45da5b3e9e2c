"""Local judge: preferences from scores, and scores from a fitted model. Pure.

D features of a trajectory, B branches.
"""

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import permutations
from typing import NamedTuple

from engine.judge.calibration.agreement import TIE
from engine.policy.base import PreferenceModel
from engine.protocol.records.runs import Split, Trajectory

GroupKey = tuple[Split, int, int]


class Preference(NamedTuple):
    """Preference between two trajectories of a group."""

    better: Trajectory
    worse: Trajectory
    weight: float = 1.0

    @property
    def group(self) -> GroupKey:
        return (self.better.split, self.better.step, self.better.group)


def preferences_of_scores(
    trajectories: Iterable[Trajectory], scores: Mapping[str, float | None], least_gap: float = 0.0
) -> list[Preference]:
    """Every two siblings whose scores differ, by `least_gap` or more; the larger score is better.
    Ties and unscored attempts say nothing."""
    groups: dict[GroupKey, list[tuple[Trajectory, float]]] = {}
    for one in trajectories:
        if (score := scores.get(one.id)) is not None:
            groups.setdefault((one.split, one.step, one.group), []).append((one, score))
    return [
        Preference(better, worse)
        for siblings in groups.values()
        for (better, high), (worse, low) in permutations(siblings, 2)
        if high - low > TIE and high - low >= least_gap - TIE
    ]


def latest(preferences: Sequence[Preference], most_attempts: int) -> list[Preference]:
    """Preferences of the latest groups with at most `most_attempts` trajectories in total; at least
    one group."""
    groups: dict[GroupKey, list[Preference]] = {}
    for preference in preferences:
        groups.setdefault(preference.group, []).append(preference)
    kept: list[list[Preference]] = []
    attempts = 0
    for group in reversed(groups.values()):
        attempts += len({one.id for preference in group for one in preference[:2]})
        if kept and attempts > most_attempts:
            break
        kept.append(group)
    return [preference for group in reversed(kept) for preference in group]


def version_of(preferences: Iterable[Preference]) -> str:
    """Hash of the preferences, independent of their order."""
    lines = sorted(f"{p.better.id}>{p.worse.id} {p.weight!r}" for p in preferences)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]


def of_trajectory(features_BD: Sequence[Sequence[float]], sampled_B: Sequence[int]) -> list[float]:
    """[D + 1]: the branches' mean, each counting as much as it has sampled tokens, and ln of the
    tokens sampled in all."""
    total = sum(sampled_B)
    shares = [sampled / total for sampled in sampled_B]
    mean = [
        math.fsum(share * x for share, x in zip(shares, column, strict=True))
        for column in zip(*features_BD, strict=True)
    ]
    return [*mean, math.log(total)]


def utility(model: PreferenceModel, features_D: Sequence[float]) -> float:
    """u(x) of `PreferenceModel`, in nats."""
    terms = zip(features_D, model.mean, model.scale, model.weights, strict=True)
    return math.fsum(weight * (x - mean) / scale for x, mean, scale, weight in terms)


def score_of(model: PreferenceModel, features_D: Sequence[float]) -> float:
    """In [0, 1], growing with the utility, the same for attempts of any group: σ(u / max(1, s)),
    s the spread over the fitted attempts, whose mean is u = 0.

    A fit that is unsure (s < 1) keeps its small differences. A sure one has utilities of ±20, and
    σ would call all the good ones equal; divided by s they stay apart.
    """
    u = utility(model, features_D) / max(1.0, model.spread)
    return 1 / (1 + math.exp(-u)) if u >= 0 else math.exp(u) / (1 + math.exp(u))
