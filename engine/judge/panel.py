"""Panel of judges: those named in the project, and the local judge for routine steps.

The named judges score every `local_every` steps. From their verdicts and from labels, the local
judge is fitted before the next step. It scores routine steps once its held-out accuracy is
sufficient; otherwise the named judges continue, and without any the trajectories stay unscored.
"""

import asyncio
from typing import Protocol

from engine.judge.calibration.measurement import Place, labels_by_place
from engine.judge.local_judge import NAME, LocalJudge, Preference, preferences_of_scores, version_of
from engine.judge.prompting.canaries import canary_results, kind_of, with_canary
from engine.judge.ruler import Ruler, can_be_judged, combined
from engine.protocol.config.project import JudgeConfig
from engine.protocol.events.run import CanaryJudged
from engine.protocol.problems import Problem
from engine.protocol.records.judging import Verdict
from engine.protocol.records.labels import preferences
from engine.protocol.records.runs import Trajectory
from engine.reward.labels import without_labels
from engine.storage.run_folder.run import Run

MOST_JUDGED = 64
"""Maximum number of judged groups, newest first, on which the local judge is fitted."""
LEAST_GAP = 0.05
"""Minimum difference of two scores that counts as a preference."""


class GroupJudge(Protocol):
    """Judge of a group."""

    async def judge(self, group: list[Trajectory]) -> list[Verdict]:
        """Verdicts, one per judge and trajectory; failed rollouts have none."""


class Panel:
    """All judges of a run."""

    def __init__(self, run: Run, ruler: Ruler | None, local: LocalJudge | None) -> None:
        self._run, self._ruler, self._local = run, ruler, local
        self._config: JudgeConfig = run.config.judge
        self._groups: dict[Place, list[Trajectory]] = {}
        self._learnt = ""
        self._caught: float | None = None

    async def prepare(self) -> None:
        """Refit the local judge before a step if there are new labels or verdicts."""
        if self._local is None:
            return
        known = await asyncio.to_thread(self._preferences)
        version = version_of(known)
        if version == self._learnt:
            return
        self._learnt = version
        accuracy = await self._local.fit(known)
        if accuracy is not None:
            least = f"{self._config.local_least:.2f}"
            enough = "" if self._may_judge else f", below judge.local_least ({least})"
            await self._run.log(
                "info",
                "judge",
                f"The local judge was trained on {len({p.group for p in known})} groups: it ranks "
                f"{100 * accuracy.share:.0f} % of {accuracy.pairs} held-out pairs "
                f"correctly{enough}.",
            )

    async def judge(self, group: list[Trajectory]) -> list[Verdict]:
        """Verdicts, one per judge and trajectory; failed rollouts have none."""
        local = self._local
        if self._ruler is not None and not (self._is_routine(group[0]) and self._may_judge):
            verdicts = await self._ruler.judge(group)
            await self._test(self._ruler, group)
            return verdicts
        if local is not None and (self._may_judge or local.accuracy is None):
            return await local.judge(group)
        return [
            Verdict(trajectory_id=one.id, judge=NAME, rubric=NAME, score=None, problem=_UNSURE)
            for one in group
            if can_be_judged(one)
        ]

    @property
    def absolute(self) -> bool:
        """Whether each trajectory is scored by criteria of its own, so that scores of different
        groups can be compared."""
        return self._ruler is not None and self._ruler.has_criteria

    def metrics(self) -> dict[str, float]:
        """Accuracy of the local judge, and share of the judges that scored the last canary (a
        planted bad answer) low, if there was one since the last call."""
        accuracy = self._local.accuracy if self._local else None
        found = {"judge/local": accuracy.share} if accuracy else {}
        if self._caught is not None:
            found["judge/canaries"], self._caught = self._caught, None
        return found

    async def _test(self, ruler: Ruler, group: list[Trajectory]) -> None:
        """Judge the first group with a canary, every `canary_every` steps, and store the result."""
        first, every = group[0], self._config.canary_every
        due = every and first.split == "train" and first.group == 0 and first.step % every == 0
        shown = [one for one in group if can_be_judged(one)]
        if not due or not shown:
            return
        kind = kind_of(first.step // every)
        caught = canary_results(await ruler.judge(with_canary(shown, kind)))
        for catch in caught:
            await self._run.say(
                CanaryJudged(
                    step=first.step,
                    group=first.group,
                    what=kind,
                    judge=catch.judge,
                    score=catch.score,
                    others=catch.others,
                    caught=catch.caught,
                )
            )
        if caught:
            self._caught = sum(catch.caught for catch in caught) / len(caught)

    @property
    def _may_judge(self) -> bool:
        accuracy = self._local.accuracy if self._local else None
        return accuracy is not None and accuracy.share >= self._config.local_least

    def _is_routine(self, one: Trajectory) -> bool:
        """Whether the local judge may score this trajectory: it is of a training step, but not of
        every `local_every`-th one, which the named judges score."""
        return one.split == "train" and (one.step - 1) % self._config.local_every != 0

    def _preferences(self) -> list[Preference]:
        """Return preferences of labels, and of the judges on groups without labels."""
        found: list[Preference] = []
        labels = labels_by_place(self._run.reader)
        judged = [place for place in self._judged() if place not in labels]
        for place in judged:
            siblings = self._stored(place)
            verdicts = self._run.reader.verdicts([one.id for one in siblings])
            scores = combined(self._config, [v for v in verdicts if v.judge != NAME])
            found += preferences_of_scores(siblings, scores, LEAST_GAP)
        for place, group_labels in labels.items():
            by_id = {one.id: one for one in self._stored(place)}
            words = [word for label in group_labels for word in label.words]
            pairs = preferences(words, list(by_id))
            found += [Preference(by_id[better], by_id[worse]) for better, worse in pairs]
        return found

    def _judged(self) -> list[Place]:
        """Return the newest groups that a named judge has scored, oldest first."""
        return self._run.reader.judged_groups(NAME, MOST_JUDGED)

    def _stored(self, place: Place) -> list[Trajectory]:
        if place not in self._groups:
            self._groups[place] = [without_labels(one) for one in self._run.reader.stored(*place)]
        return self._groups[place]


_UNSURE = Problem(
    code="judge.local_unsure",
    message="The local judge is not accurate enough yet, and no other judge is set.",
    hint="Label more groups, set a judge in judge.models, or lower judge.local_least.",
)
