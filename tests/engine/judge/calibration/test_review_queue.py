"""Ranking of groups to label: each reason is found, weighted and explained, and silent ones are
left out."""

from collections.abc import Sequence
from typing import Any

import pytest

from engine.judge.calibration.review_queue import (
    WEIGHTS,
    Candidate,
    Reviewed,
    rank_groups,
    reversed_pairs,
)


def group(number: int, rewards: Sequence[float | None], **fields: Any) -> Candidate:
    values: dict[str, Any] = {
        "split": "train",
        "step": 1,
        "group": number,
        "title": f"Scenario {number}",
        "rewards": rewards,
        "advantages": [None] * len(rewards),
        "trajectories": [trajectory(index) for index in range(len(rewards))],
    }
    return Candidate(**values | fields)


def trajectory(index: int, judge: float | None = None, rules: float | None = None) -> Reviewed:
    return Reviewed(index, turns=1, tokens=10 + index, judge=judge, rules=rules)


def only(candidate: Candidate) -> dict[str, float]:
    """Strengths of the reasons of one group; empty if it is left out."""
    items = rank_groups([candidate])
    return dict(items[0].strengths) if items else {}


def test_groups_that_teach_nothing_are_left_out() -> None:
    equal = group(0, [0.5, 0.5, 0.5], advantages=[0.0, 0.0, 0.0])
    one_scored = group(1, [0.5, None])
    failed = [trajectory(k)._replace(may_be_scored=False) for k in range(2)]
    all_failed = group(2, [None, None], trajectories=failed)
    assert rank_groups([equal, one_scored, all_failed]) == []


def test_reversed_pairs_between_judge_passes() -> None:
    steady = {0: [0.1, 0.2], 1: [0.5, 0.5], 2: [0.9, 0.8]}
    turning = {0: [0.1, 0.9], 1: [0.5, 0.5], 2: [0.9, 0.1]}
    uneven = {0: [0.1], 1: [0.5, 0.5], 2: [0.9, 0.1]}
    rewards = [0.1, 0.5, 0.9]
    assert "judge_passes" not in only(group(0, rewards, passes={"m": steady}))
    assert "judge_passes" not in only(group(0, rewards, passes={"m": uneven}))
    (item,) = rank_groups([group(0, rewards, passes={"m": turning})])
    assert (item.reason, item.strengths["judge_passes"]) == ("judge_passes", 1.0)
    assert item.words == "The passes of the judge rank 3 of 3 pairs differently."


def test_reversed_pairs_between_judges_and_between_judge_and_rules() -> None:
    scores = {"a": {0: 0.1, 1: 0.2, 2: 0.3}, "b": {0: 0.2, 1: 0.1, 2: 0.3}}
    assert only(group(0, [0.1, 0.5, 0.9], scores=scores)) == {"judge_models": pytest.approx(2 / 3)}
    mixed = [trajectory(0, 0.1, 1.0), trajectory(1, 0.5, 0.0), trajectory(2, 0.9, 0.0)]
    found = only(group(0, [1.1, 0.5, 0.9], trajectories=mixed))
    assert found == {"judge_and_rules": 1.0}
    assert reversed_pairs({0: 1.0, 1: 0.0}, {0: 0.0, 1: 0.0}) == (0, 1)


def test_spread_near_tie_and_advantage() -> None:
    passes = {"m": {0: [0.1, 0.2], 1: [0.5, 0.7]}}
    assert only(group(0, [0.1, 0.9], passes=passes)) == {"spread": pytest.approx(0.3)}
    assert only(group(0, [0.0, 0.96, 1.0])) == {"near_tie": pytest.approx(0.6)}
    assert only(group(0, [0.0, 0.8, 1.0])) == {}
    twice = group(1, [0.0, 0.5, 1.0], advantages=[-0.5, 0.0, 0.5])
    items = rank_groups([twice, group(2, [0.0, 0.5, 1.0], advantages=[-0.25, 0.0, 0.25])])
    assert [one.strengths for one in items] == [{"advantage": 1.0}, {"advantage": 0.5}]


def test_copies_are_no_near_tie() -> None:
    """Two trajectories with equal scores, turns and tokens are the same text."""
    copies = [trajectory(0), trajectory(1), trajectory(2)._replace(tokens=11)]
    assert only(group(0, [0.0, 1.0, 1.0], trajectories=copies)) == {}
    assert only(group(0, [0.0, 1.0, 1.0])) == {"near_tie": 1.0}


def test_order_is_by_weighted_value_then_newest_step() -> None:
    unscored = group(0, [None, None])
    near_tie = group(1, [0.0, 1.0, 1.0])
    later = group(1, [0.0, 1.0, 1.0], step=2)
    ranked = rank_groups([near_tie, unscored, later])
    assert [(one.step, one.group) for one in ranked] == [(1, 0), (2, 1), (1, 1)]
    total = sum(WEIGHTS.values())
    assert ranked[0].value == pytest.approx(WEIGHTS["unscored"] / total)
    (alone,) = rank_groups([unscored, near_tie], ["near_tie"])
    assert (alone.group, alone.value) == (1, 1.0)
