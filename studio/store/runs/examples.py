"""Validation examples of a checkpoint: its rollouts beside those before training."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from engine.protocol.records.comparison import EQUAL
from engine.protocol.records.runs import GroupSummary
from studio.store.runs.state import RunState

LEAST_CHANGE = 1e-6
"""Difference of mean rewards from which an example counts as changed."""


@dataclass(frozen=True)
class Example:
    """Scenario of the validation set: its group of rollouts before training (None: unknown), and
    with the checkpoint."""

    before: GroupSummary | None
    after: GroupSummary
    judged: bool = False
    """Whether a judge scores: rewards are then relative to their group and tell no change."""
    score: float | None = None
    """Share of comparisons by the judge that the checkpoint won against the baseline; None without
    a comparison."""

    @property
    def title(self) -> str:
        return self.after.title

    @property
    def change(self) -> float | None:
        """Change of the mean reward or, if a judge compares, share of won comparisons minus 0.5;
        None if unknown."""
        if self.judged:
            return None if self.score is None else self.score - EQUAL
        if self.before is None or self.before.mean is None or self.after.mean is None:
            return None
        return self.after.mean - self.before.mean

    @property
    def changed(self) -> bool:
        return self.change is not None and abs(self.change) > LEAST_CHANGE


def examples_of(
    before: Sequence[GroupSummary],
    after: Sequence[GroupSummary],
    scores: Mapping[str, float] | None = None,
) -> list[Example]:
    """Pair the groups of two validations by scenario: the largest changes first, then the unchanged
    ones by title, then those without a result. `scores`: of a judged run, scenario id → share of
    won comparisons."""
    known = {group.scenario_id: group for group in before}
    judged, won = scores is not None, scores or {}
    found = [
        Example(known.get(group.scenario_id), group, judged, won.get(group.scenario_id))
        for group in after
    ]

    def order(one: Example) -> tuple[bool, float, str]:
        return one.change is None, -abs(one.change or 0.0), one.title

    return sorted(found, key=order)


def judged_scores(state: RunState, first: int, step: int) -> Mapping[str, float] | None:
    """Return the judge's comparison of the validation of `step` with that of the step `first`:
    scenario id → share of comparisons that `step` won. Empty if they were not compared; None for a
    run without a judge."""
    if state.spec is None or not state.spec.config.judge.enabled:
        return None
    found = next((one for one in state.validations if one.step == step), None)
    against = found.against if found else ()
    return next((one.scores for one in against if one.opponent == first), {})


def validation_at(validated: Iterable[int], step: int) -> int | None:
    """Return the last validated step up to `step`; None if there is none."""
    return max((one for one in validated if one <= step), default=None)
