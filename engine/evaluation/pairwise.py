"""Judge of validation rollouts: ranks those of a step together with those of earlier steps."""

from collections.abc import Mapping, Sequence
from itertools import chain

from engine.evaluation.win_rate import Outcome, pairwise_score, ratings
from engine.judge.panel import Panel
from engine.judge.ruler import can_be_judged, combined
from engine.judge.scoring import with_verdicts
from engine.protocol.events.run import ValidationFinished
from engine.protocol.records.comparison import EQUAL, StepComparison
from engine.protocol.records.judging import Verdict
from engine.protocol.records.runs import Interval, Trajectory
from engine.reward.advantage.group import group_summary
from engine.storage.run_folder.run import Run

Rollouts = dict[str, list[Trajectory]]
"""Scenario id → stored validation rollouts of one step."""


class PairwiseJudge:
    """Judge of one validation. The rollouts of a scenario are shown to the panel together with
    those of the first validation and of the best one so far, in shuffled order."""

    def __init__(self, run: Run, panel: Panel, step: int) -> None:
        self._run, self._panel = run, panel
        self._earlier = [one for one in validations_of(run) if one.step < step]
        self._opponents: dict[int, Rollouts] = {
            opponent: _by_scenario(run.reader.stored("validation", opponent))
            for opponent in opponents(self._earlier)
        }
        self._scores: dict[str, dict[int, float | None]] = {}

    @property
    def relative(self) -> bool:
        """Whether rewards can be compared only within a group, as a judge's relative scores."""
        return not self._panel.absolute

    @property
    def waits(self) -> bool:
        """Whether the rollouts of this validation cannot be judged yet: scores are relative, and
        there is no earlier validation to compare with. The next validation judges them."""
        return self.relative and not self._opponents

    async def judge(self, group: list[Trajectory]) -> list[Verdict]:
        """Verdicts on the rollouts of one scenario, which the panel ranks together with rollouts of
        earlier validations on that scenario."""
        scenario = group[0].scenario_id
        others = {step: by.get(scenario, []) for step, by in self._opponents.items()}
        if not any(can_be_judged(one) for one in group):
            self._scores[scenario] = dict.fromkeys(others)
            return []
        rivals = [one for one in chain(*others.values()) if can_be_judged(one)]
        verdicts = await self._panel.judge([*group, *rivals])
        scores = combined(self._run.config.judge, verdicts)
        ours = [scores[one.id] for one in group if one.id in scores]
        self._scores[scenario] = {
            step: pairwise_score(ours, [scores[one.id] for one in theirs if one.id in scores])
            for step, theirs in others.items()
        }
        for theirs in others.values():
            await self._store(theirs, verdicts)
        return _verdicts_on(group, verdicts)

    async def _store(self, group: list[Trajectory], verdicts: list[Verdict]) -> None:
        """Store verdicts and rewards of an earlier group that waited for this comparison."""
        if any(one.awaits_judge for one in group):
            own = _verdicts_on([one for one in group if one.awaits_judge], verdicts)
            scored = with_verdicts(self._run.config, group, own)
            await self._run.writer.add_verdicts(own, scored, rewarded=True)
            kind = self._run.config.train.algorithm.advantage
            await self._run.writer.add_group(group_summary(kind, scored))

    async def comparisons(self, groups: Sequence[list[Trajectory]]) -> tuple[StepComparison, ...]:
        """Comparisons of this validation with each earlier one that it is judged against. `groups`
        are its rollouts, by scenario; those judged before an interruption are judged again, from
        stored replies."""
        for group in groups:
            if self._opponents and group[0].scenario_id not in self._scores:
                await self.judge(group)
        return tuple(self._comparison(opponent) for opponent in self._opponents)

    def win_rates(self, step: int, against: Sequence[StepComparison]) -> dict[int, Interval]:
        """Win rate of each validated step against the first validation, from all earlier
        comparisons and from `against`, those of `step`; empty if `against` is."""
        if not against:
            return {}
        known = [(one.step, one.against) for one in self._earlier]
        return ratings(
            [
                Outcome(scenario, number, comparison.opponent, score)
                for number, comparisons in [*known, (step, against)]
                for comparison in comparisons
                for scenario, score in comparison.scores.items()
            ],
            self._earlier[0].step,
        )

    def _comparison(self, opponent: int) -> StepComparison:
        scores = {scenario: by.get(opponent) for scenario, by in self._scores.items()}
        known = {scenario: score for scenario, score in scores.items() if score is not None}
        return StepComparison(opponent=opponent, scores=known, unjudged=len(scores) - len(known))


def opponents(earlier: Sequence[ValidationFinished]) -> list[int]:
    """Steps to compare the next validation with: the first validation, and the best of the others
    if its win rate against the first is above one half. Empty without earlier validations."""
    if not earlier:
        return []
    rates: Mapping[int, Interval] = earlier[-1].win_rates
    best = max(rates, key=lambda step: rates[step].mean, default=None)
    first = earlier[0].step
    return [first, best] if best is not None and rates[best].mean > EQUAL else [first]


def validations_of(run: Run) -> list[ValidationFinished]:
    """Validations of the run, ordered by step."""
    found = run.reader.events_of("validation.finished")
    return sorted(
        (one for one in found if isinstance(one, ValidationFinished)), key=lambda one: one.step
    )


def _verdicts_on(group: Sequence[Trajectory], verdicts: Sequence[Verdict]) -> list[Verdict]:
    ids = {one.id for one in group}
    return [verdict for verdict in verdicts if verdict.trajectory_id in ids]


def _by_scenario(rollouts: Sequence[Trajectory]) -> Rollouts:
    found: Rollouts = {}
    for one in rollouts:
        found.setdefault(one.scenario_id, []).append(one)
    return found
