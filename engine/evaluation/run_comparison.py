"""Comparison of the validations of runs, scenario by scenario. Pure.

Rewards of runs with rules are compared as they are. A judge's scores are relative to their group,
so judged runs are compared by how often each beat its own first validation, scenario by scenario.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from engine.evaluation.comparison import compare
from engine.protocol.events.run import ValidationFinished
from engine.protocol.records.comparison import EQUAL
from engine.protocol.records.run_table import ComparedRun, Measure, ScenarioScores
from engine.protocol.records.runs import Interval, TrajectorySummary


@dataclass(frozen=True)
class Candidate:
    """Run to compare, with its validations."""

    run_id: str
    name: str
    validations: Sequence[ValidationFinished]
    """Validations in order of their steps, one per step."""

    @property
    def win_rates(self) -> Mapping[int, Interval]:
        return self.validations[-1].win_rates if self.validations else {}

    def results(self, measure: Measure) -> dict[int, Interval]:
        """Step → result of its validation by this measure."""
        if measure == "win_rate":
            return dict(sorted(self.win_rates.items()))
        return {one.step: one.reward for one in self.validations if one.reward}

    def chosen(self, measure: Measure, at: Literal["best", "last"]) -> int | None:
        """Step of the best or last validation by this measure, the earliest of equal ones; None
        without any."""
        results = self.results(measure)
        if at == "last":
            return max(results, default=None)
        return max(results, key=lambda step: results[step].mean, default=None)


def measure_of(candidates: Sequence[Candidate]) -> Measure:
    """Measure for comparing runs: win rates if any run has them and not every run has validation
    rewards, else rewards."""
    rated = any(one.win_rates for one in candidates)
    return "win_rate" if rated and not all(c.results("reward") for c in candidates) else "reward"


def scenario_rewards(rows: Sequence[TrajectorySummary]) -> dict[str, float | None]:
    """Scenario id → mean reward of its rollouts; None if none of them is scored."""
    rewards: dict[str, list[float]] = {}
    for row in rows:
        scored = rewards.setdefault(row.scenario_id, [])
        if row.reward is not None:
            scored.append(row.reward)
    return {name: statistics.fmean(of) if of else None for name, of in rewards.items()}


def scenario_wins(candidate: Candidate, step: int) -> dict[str, float | None]:
    """Scenario id → 1 if the validation of `step` beat the run's first one there, 0.5 for a tie, 0
    if it lost; None stands for each scenario without a valid comparison. The first validation ties
    with itself."""
    first = candidate.validations[0]
    against_first = {
        one.step: comparison
        for one in candidate.validations
        for comparison in one.against
        if comparison.opponent == first.step
    }
    if step == first.step:
        names = dict.fromkeys(name for each in against_first.values() for name in each.scores)
        return dict.fromkeys(names, EQUAL)
    comparison = against_first.get(step)
    if comparison is None:
        return {}
    unjudged = dict.fromkeys(f"unjudged {place}" for place in range(comparison.unjudged))
    return {**comparison.scores, **unjudged}


def compared(
    candidates: Sequence[Candidate],
    steps: Sequence[int | None],
    scores: Sequence[Mapping[str, float | None]],
    measure: Measure,
) -> list[ComparedRun]:
    """Compare each run with the first by scores per scenario (`scores`, one mapping per run) at the
    validation of its step in `steps` (None: it has none, and is not compared). Scenarios without a
    score on either side do not count."""
    known = [{name: s for name, s in each.items() if s is not None} for each in scores]
    return [
        ComparedRun(
            run_id=one.run_id,
            name=one.name,
            step=step,
            validations=len(one.results(measure)),
            result=None if step is None else one.results(measure)[step],
            unscored=len(scores[place]) - len(known[place]),
            versus=compare(known[place], known[0], candidates[0].name)
            if place and step is not None and steps[0] is not None
            else None,
        )
        for place, (one, step) in enumerate(zip(candidates, steps, strict=True))
    ]


def scenario_table(
    scores: Sequence[Mapping[str, float | None]], titles: Mapping[str, str]
) -> list[ScenarioScores]:
    """Return a row per scenario that any run has a score for; those on which the runs differ most
    come first. `scores`: one mapping per run, by scenario id."""
    names = dict.fromkeys(name for each in scores for name in each if each[name] is not None)
    rows = [
        ScenarioScores(
            scenario_id=name, title=titles.get(name, name), scores=[e.get(name) for e in scores]
        )
        for name in names
    ]
    return sorted(rows, key=lambda row: -_spread(row.scores))


def _spread(scores: Sequence[float | None]) -> float:
    known = [score for score in scores if score is not None]
    return max(known) - min(known) if known else -1.0
