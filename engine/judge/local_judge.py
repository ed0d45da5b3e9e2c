"""Local judge: a small preference model, fitted by the engine, that scores at no cost.

Input: preferences between trajectories of a group (from labels or stored verdicts). Output:
verdicts. A trajectory is represented by features of the base policy, which training does not
change. The fit is a Bradley–Terry model, computed by the policy process; scoring is plain
arithmetic. The caller requests a new `fit` every few steps and reports `accuracy`.
"""

import hashlib
import math
from array import array
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import permutations
from typing import NamedTuple

from engine.judge.calibration.agreement import TIE
from engine.judge.ruler import can_be_judged
from engine.policy.base import ImageInput, Pair, Policy, PreferenceModel, TrainItem
from engine.protocol.problems import Problem
from engine.protocol.records.conversations import Branch
from engine.protocol.records.judging import Verdict
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
    """Return pairs (better, worse) in each group whose scores, by trajectory id, differ by at least
    `least_gap`. Ties and unscored trajectories give no pair."""
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
    """Preferences of the last groups (`preferences` has the newest at the end), as many as have at
    most `most_attempts` trajectories in total, but at least the last one."""
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
    """Return features [D + 1] of a trajectory: the mean of its branches' features weighted by their
    sampled tokens, and the natural logarithm of all sampled tokens."""
    total = sum(sampled_B)
    shares = [sampled / total for sampled in sampled_B]
    mean = [
        math.fsum(share * x for share, x in zip(shares, column, strict=True))
        for column in zip(*features_BD, strict=True)
    ]
    return [*mean, math.log(total)]


def utility(model: PreferenceModel, features_D: Sequence[float]) -> float:
    """Utility u(x) of a trajectory under the model, in nats."""
    terms = zip(features_D, model.mean, model.scale, model.weights, strict=True)
    return math.fsum(weight * (x - mean) / scale for x, mean, scale, weight in terms)


def score_of(model: PreferenceModel, features_D: Sequence[float]) -> float:
    """Score in [0, 1] of one trajectory, comparable across groups: σ(u / max(1, s)), with u its
    utility and s the standard deviation of u over the fitted trajectories. The division by s keeps
    a confident fit from saturating. `features_D` are raw features, as many as `model.mean` has;
    raises ValueError for another number."""
    u = utility(model, features_D) / max(1.0, model.spread)
    return 1 / (1 + math.exp(-u)) if u >= 0 else math.exp(u) / (1 + math.exp(u))


NAME = "local"
ImageInputs = Callable[[Branch], Awaitable[list[ImageInput]]]
LEAST_GROUPS, LEAST_PAIRS = 8, 16
"""Minimum data for a fit: below it, accuracy cannot be measured."""
MOST_ATTEMPTS = 2048
"""Maximum trajectories per fit, latest groups first: seconds, and a few dozen megabytes."""
MOST_CACHED = 16_384
"""Maximum trajectories with cached features: 75 MB at 576 hidden units."""


class Accuracy(NamedTuple):
    """Pairwise accuracy of the fitted model on held-out groups."""

    share: float
    pairs: int
    """Number of held-out pairs."""


class Fit(NamedTuple):
    model: PreferenceModel
    version: str
    """Hash of the preferences, 12 hex digits."""
    groups: int
    accuracy: Accuracy


class LocalJudge:
    """Judge of trajectories by a model fitted on preferences, with features from one policy."""

    def __init__(self, policy: Policy, inputs: ImageInputs | None = None) -> None:
        """`inputs`: images of a branch with the inputs of the vision model; None if messages have
        none."""
        self._policy, self._inputs = policy, inputs
        self._features: dict[str, array[float]] = {}
        self._fit: Fit | None = None

    @property
    def accuracy(self) -> Accuracy | None:
        """Accuracy on held-out groups; None without a fit."""
        return self._fit.accuracy if self._fit else None

    @property
    def version(self) -> str | None:
        """Hash of the preferences that the judge was fitted on; None without a fit."""
        return self._fit.version if self._fit else None

    async def fit(self, preferences: Sequence[Preference]) -> Accuracy | None:
        """Fit the model on these preferences only and return its accuracy. With fewer than
        LEAST_GROUPS groups or LEAST_PAIRS usable pairs, the judge then has no fit; returns None."""
        usable = latest([p for p in preferences if p.weight > 0 and _has_tokens(p)], MOST_ATTEMPTS)
        groups = list(dict.fromkeys(preference.group for preference in usable))
        if len(groups) < LEAST_GROUPS or len(usable) < LEAST_PAIRS:
            self._fit = None
            return None
        attempts = {one.id: one for preference in usable for one in preference[:2]}
        features = await self._known(attempts.values())
        place = {name: number for number, name in enumerate(attempts)}
        number = {group: number for number, group in enumerate(groups)}
        pairs = [
            Pair(place[p.better.id], place[p.worse.id], number[p.group], p.weight) for p in usable
        ]
        model = await self._policy.fit_preferences([features[name] for name in attempts], pairs)
        assert model.accuracy is not None, "several groups, so some were held out"
        accuracy = Accuracy(model.accuracy, model.count)
        self._fit = Fit(model, version_of(usable), len(groups), accuracy)
        return accuracy

    async def judge(self, group: list[Trajectory]) -> list[Verdict]:
        """Return a verdict for each trajectory, none for failed rollouts. A verdict has no score if
        the judge has no fit, or the trajectory no features. Raises errors of the policy."""
        attempts = [one for one in group if can_be_judged(one)]
        fit = self._fit
        if fit is None:
            return [_unscored(one, _UNFITTED) for one in attempts]
        features = await self._known(attempts)
        return [
            _verdict(one, fit, features[one.id])
            if one.id in features
            else _unscored(one, _NO_FEATURES)
            for one in attempts
        ]

    async def _known(self, attempts: Iterable[Trajectory]) -> dict[str, list[float]]:
        """Return features by id, if a trajectory has any; new ones are computed in one call."""
        wanted = {one.id: items for one in attempts if (items := await self._items(one))}
        features = {name: self._features[name] for name in wanted if name in self._features}
        new = {name: items for name, items in wanted.items() if name not in features}
        batch = [item for items in new.values() for item in items]
        rows = iter(await self._policy.features(batch) if batch else [])
        for name, items in new.items():
            own = [next(rows) for _ in items]
            vector = array("f", of_trajectory(own, [_sampled(item) for item in items]))
            features[name] = self._features[name] = vector
        while len(self._features) > MOST_CACHED:
            del self._features[next(iter(self._features))]
        return {name: features[name].tolist() for name in wanted}

    async def _items(self, one: Trajectory) -> list[TrainItem]:
        return [
            TrainItem(
                tokens=branch.tokens,
                spans=branch.spans,
                images=await self._inputs(branch) if self._inputs else [],
            )
            for branch in one.trained_branches
        ]


def _has_tokens(preference: Preference) -> bool:
    return all(bool(one.trained_branches) for one in preference[:2])


def _sampled(item: TrainItem) -> int:
    return sum(end - start for start, end in item.spans)


def _verdict(one: Trajectory, fit: Fit, features_D: Sequence[float]) -> Verdict:
    score = score_of(fit.model, features_D)
    like = "Resembles preferred" if score >= 0.5 else "Resembles rejected"
    return Verdict(
        trajectory_id=one.id,
        judge=NAME,
        rubric=NAME,
        score=score,
        reason=f"{like} trajectories of {fit.groups} groups. This model (fit {fit.version}) ranks "
        f"{100 * fit.accuracy.share:.0f} % of {fit.accuracy.pairs} held-out pairs correctly.",
    )


def _unscored(one: Trajectory, problem: Problem) -> Verdict:
    return Verdict(trajectory_id=one.id, judge=NAME, rubric=NAME, score=None, problem=problem)


_UNFITTED = Problem(
    code="judge.local_unfitted",
    message=f"The local judge needs at least {LEAST_GROUPS} groups and {LEAST_PAIRS} pairs.",
    hint="Label more groups whose trajectories differ, or let another judge score some groups.",
)
_NO_FEATURES = Problem(
    code="judge.local_no_features",
    message="The model sampled no token in this rollout; the local judge cannot score it.",
    hint="Let the LLM judge score the group, or label the group yourself.",
)
