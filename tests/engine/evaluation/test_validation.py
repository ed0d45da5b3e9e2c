"""Mean scores of the criteria of a rubric in a validation."""

import pytest

from engine.evaluation.validation import criterion_means
from engine.protocol.records.judging import Verdict
from tests.engine.evaluation.test_pairwise import rollout


def verdict(trajectory: str, score: float | None = 0.5, **criteria: float) -> Verdict:
    return Verdict(trajectory_id=trajectory, judge="j", rubric="r", score=score, criteria=criteria)


def test_scenarios_count_alike_whatever_their_number_of_rollouts_and_judges() -> None:
    groups = [[rollout("a", "s"), rollout("b", "s")], [rollout("c", "t")]]
    verdicts = [
        verdict("a", clear=0.0, short=0.5),
        verdict("a", clear=0.4),
        verdict("b", clear=0.8),
        verdict("c", clear=1.0),
    ]
    means = criterion_means(groups, verdicts)
    assert set(means) == {"clear", "short"}
    assert means["clear"].mean == pytest.approx((0.4 + 1.0) / 2)
    assert (means["clear"].count, means["short"].count) == (2, 1)
    assert means["clear"].low < means["clear"].mean < means["clear"].high


def test_invalid_verdicts_and_scores_without_criteria_are_left_out() -> None:
    groups = [[rollout("a", "s"), rollout("b", "s")]]
    means = criterion_means(groups, [verdict("a", None, clear=0.0), verdict("b", clear=0.6)])
    assert means["clear"].mean == pytest.approx(0.6)
    assert criterion_means(groups, [verdict("a")]) == {}
    assert criterion_means([], []) == {}
