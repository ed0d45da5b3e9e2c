"""Preferences from scores, and scores from a preference model."""

import math

import pytest

from engine.judge.local_judge import (
    latest,
    of_trajectory,
    preferences_of_scores,
    score_of,
    utility,
    version_of,
)
from engine.policy.base import PreferenceModel
from tests.engine.judge.test_local_judge import groups, preferences_by_quality, trajectory


def test_preferences_pair_group_members_beyond_the_margin() -> None:
    trajectories = [trajectory(0, i, i) for i in range(4)] + [trajectory(1, i, i) for i in range(2)]
    names = [one.id for one in trajectories]
    scores = dict(zip(names, [0.2, 0.5, 0.2, None, 0.9, 0.1], strict=True))
    pairs = {(p.better.id, p.worse.id) for p in preferences_of_scores(trajectories, scores, 0.0)}
    assert pairs == {("t0-1", "t0-0"), ("t0-1", "t0-2"), ("t1-0", "t1-1")}
    pairs = {(p.better.id, p.worse.id) for p in preferences_of_scores(trajectories, scores, 0.31)}
    assert pairs == {("t1-0", "t1-1")}
    assert len(preferences_of_scores(trajectories, scores, 0.3)) == 3


def test_latest_keeps_whole_groups_within_the_limit() -> None:
    preferences = preferences_by_quality(groups(10))
    kept_pairs = latest(preferences, 9)
    assert {preference.group for preference in kept_pairs} == {("train", 1, 8), ("train", 1, 9)}
    assert latest(preferences, 1) == [p for p in preferences if p.group == ("train", 1, 9)]
    assert latest(preferences, 99) == preferences


def test_version_depends_on_preferences_and_weights_but_not_order() -> None:
    preferences = preferences_by_quality(groups(3))
    assert version_of(preferences) == version_of(preferences[::-1])
    assert version_of(preferences) != version_of(preferences[:-1])
    reweighted = [preferences[0]._replace(weight=2.0), *preferences[1:]]
    assert version_of(preferences) != version_of(reweighted)
    assert len(version_of([])) == 12


@pytest.mark.parametrize("spread", [0.1, 1.0, 12.0])
def test_scores_preserve_the_order_of_utilities(spread: float) -> None:
    model = PreferenceModel(
        mean=[1.0], scale=[2.0], weights=[3.0], strength=1.0, spread=spread, accuracy=0.9, count=9
    )
    assert utility(model, [5.0]) == 6.0
    scores = [score_of(model, [x / 2]) for x in range(-20, 21)]
    assert scores == sorted(set(scores))
    assert score_of(model, [1.0]) == 0.5
    assert score_of(model, [1e4]) == 1.0
    assert score_of(model, [-1e4]) == 0.0


def test_branch_features_are_weighted_by_sampled_tokens() -> None:
    assert of_trajectory([[1.0, 4.0], [5.0, 8.0]], [3, 1]) == [2.0, 5.0, math.log(4)]
