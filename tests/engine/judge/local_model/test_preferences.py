"""Preferences from scores and scores from a model: values in, values out."""

import math

import pytest

from engine.judge.local_model.preferences import (
    latest,
    of_trajectory,
    preferences_of_scores,
    score_of,
    utility,
    version_of,
)
from engine.policy.base import PreferenceModel
from tests.engine.judge.local_model.test_judge import attempt, groups, preferred


def test_preferences_are_between_siblings_that_differ_enough() -> None:
    attempts = [attempt(0, i, i) for i in range(4)] + [attempt(1, i, i) for i in range(2)]
    names = [one.id for one in attempts]
    scores = dict(zip(names, [0.2, 0.5, 0.2, None, 0.9, 0.1], strict=True))
    found = {(p.better.id, p.worse.id) for p in preferences_of_scores(attempts, scores, 0.0)}
    assert found == {("t0-1", "t0-0"), ("t0-1", "t0-2"), ("t1-0", "t1-1")}
    found = {(p.better.id, p.worse.id) for p in preferences_of_scores(attempts, scores, 0.31)}
    assert found == {("t1-0", "t1-1")}
    assert len(preferences_of_scores(attempts, scores, 0.3)) == 3


def test_too_many_are_cut_to_the_last_whole_groups() -> None:
    preferences = preferred(groups(10))
    kept = latest(preferences, 9)
    assert {preference.group for preference in kept} == {("train", 1, 8), ("train", 1, 9)}
    assert latest(preferences, 1) == [p for p in preferences if p.group == ("train", 1, 9)]
    assert latest(preferences, 99) == preferences


def test_the_version_names_the_preferences() -> None:
    preferences = preferred(groups(3))
    assert version_of(preferences) == version_of(preferences[::-1])
    assert version_of(preferences) != version_of(preferences[:-1])
    turned = [preferences[0]._replace(weight=2.0), *preferences[1:]]
    assert version_of(preferences) != version_of(turned)
    assert len(version_of([])) == 12


@pytest.mark.parametrize("spread", [0.1, 1.0, 12.0])
def test_scores_keep_the_order_of_utilities(spread: float) -> None:
    model = PreferenceModel(
        mean=[1.0], scale=[2.0], weights=[3.0], strength=1.0, spread=spread, accuracy=0.9, count=9
    )
    assert utility(model, [5.0]) == 6.0
    scores = [score_of(model, [x / 2]) for x in range(-20, 21)]
    assert scores == sorted(set(scores))
    assert score_of(model, [1.0]) == 0.5
    assert score_of(model, [1e4]) == 1.0
    assert score_of(model, [-1e4]) == 0.0


def test_branches_count_by_what_they_sampled() -> None:
    assert of_trajectory([[1.0, 4.0], [5.0, 8.0]], [3, 1]) == [2.0, 5.0, math.log(4)]
