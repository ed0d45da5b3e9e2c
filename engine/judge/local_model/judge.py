"""The local judge: a small model of what is preferred, fitted on the engine, that costs nothing.

Preferences between siblings go in (from labels or from stored verdicts), verdicts come out. What it
knows of an attempt are the policy's features of it, which no training changes; the fit is a
Bradley–Terry model, computed by the policy process. Scoring is plain arithmetic. Who wires it asks
for a new `fit` every so many steps and shows `accuracy`.
"""

from array import array
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from engine.judge.local_model.preferences import (
    Preference,
    latest,
    of_trajectory,
    score_of,
    version_of,
)
from engine.judge.ruler import can_be_judged
from engine.policy.base import Pair, Policy, PreferenceModel, TrainItem
from engine.protocol.problems import Problem
from engine.protocol.records.judging import Verdict
from engine.protocol.records.runs import Trajectory

NAME = "local"
LEAST_GROUPS, LEAST_PAIRS = 8, 16
"""Below these it does not judge: there is nothing to say how good it is."""
MOST_ATTEMPTS = 2048
"""Trajectories of one fit, whole groups, the latest ones: seconds, and a few dozen megabytes."""
MOST_CACHED = 16_384
"""Attempts whose features are kept: 75 MB of a model of 576 hidden units."""


class Accuracy(NamedTuple):
    """Pairwise accuracy of the fitted model on held-out groups."""

    share: float
    pairs: int
    """Pairs that were held out."""


class Fit(NamedTuple):
    model: PreferenceModel
    version: str
    """Twelve digits of the SHA-256 of the preferences behind it."""
    groups: int
    accuracy: Accuracy


class LocalJudge:
    """Judges attempts of one policy's runs by what was preferred so far."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._features: dict[str, array[float]] = {}
        self._fit: Fit | None = None

    @property
    def accuracy(self) -> Accuracy | None:
        """None while it is not fitted."""
        return self._fit.accuracy if self._fit else None

    @property
    def version(self) -> str | None:
        """Version of the fitted model; None while it is not fitted."""
        return self._fit.version if self._fit else None

    async def fit(self, preferences: Sequence[Preference]) -> Accuracy | None:
        """Learn from all of these and nothing else. With fewer than LEAST_GROUPS groups or
        LEAST_PAIRS pairs of attempts that have features, it is unfitted afterwards."""
        usable = latest([p for p in preferences if p.weight > 0 and _said(p)], MOST_ATTEMPTS)
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
        """Verdicts, one per trajectory, in their order; failed rollouts have none. Raises what the
        policy raises."""
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
        """Features by id, of those that have some; what is new is asked of the policy at once."""
        wanted = {one.id: items for one in attempts if (items := _branches(one))}
        found = {name: self._features[name] for name in wanted if name in self._features}
        new = {name: items for name, items in wanted.items() if name not in found}
        asked = [item for items in new.values() for item in items]
        rows = iter(await self._policy.features(asked) if asked else [])
        for name, items in new.items():
            own = [next(rows) for _ in items]
            vector = array("f", of_trajectory(own, [_sampled(item) for item in items]))
            found[name] = self._features[name] = vector
        while len(self._features) > MOST_CACHED:
            del self._features[next(iter(self._features))]
        return {name: found[name].tolist() for name in wanted}


def _said(preference: Preference) -> bool:
    return all(_branches(one) for one in preference[:2])


def _branches(one: Trajectory) -> list[TrainItem]:
    """Branches with sampled tokens, as items for the policy."""
    return [TrainItem(tokens=b.tokens, spans=b.spans) for b in one.branches if b.sampled]


def _sampled(item: TrainItem) -> int:
    return sum(end - start for start, end in item.spans)


def _verdict(one: Trajectory, fit: Fit, features_D: Sequence[float]) -> Verdict:
    score = score_of(fit.model, features_D)
    like = "Like those preferred" if score >= 0.5 else "Like those not preferred"
    return Verdict(
        trajectory_id=one.id,
        judge=NAME,
        rubric=NAME,
        score=score,
        reason=f"{like} in {fit.groups} groups; agrees with {fit.accuracy.share:.2f} of "
        f"{fit.accuracy.pairs} held-out pairs (fit {fit.version}).",
    )


def _unscored(one: Trajectory, problem: Problem) -> Verdict:
    return Verdict(trajectory_id=one.id, judge=NAME, rubric=NAME, score=None, problem=problem)


_UNFITTED = Problem(
    code="judge.local_unfitted",
    message=f"The local judge has seen fewer than {LEAST_GROUPS} groups or {LEAST_PAIRS} pairs.",
    hint="Label more groups whose trajectories differ, or let another judge score some.",
)
_NO_FEATURES = Problem(
    code="judge.local_no_features",
    message="The model sampled nothing in this rollout, so the local judge cannot score it.",
    hint="Let the LLM judge score the group, or label it yourself.",
)
