"""Group advantages: exact ties, unscored trajectories, and the published formulas."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol.config.algorithm import GroupMean, GroupStd, LeaveOneOut, PlainReward
from engine.protocol.records.runs import GroupSummary, Interval, Trajectory
from engine.reward.advantage.group import (
    advantages,
    group_summary,
    interval,
    mean_and_std,
    rewards_differ,
)

KINDS = [GroupMean(), GroupStd(), LeaveOneOut()]
rewards = st.lists(st.one_of(st.none(), st.floats(-5, 5)), min_size=1, max_size=18)


@given(st.floats(-5, 5), st.integers(1, 18))
@pytest.mark.parametrize("kind", KINDS)
def test_equal_rewards_give_zero_advantages(kind: GroupMean, reward: float, size: int) -> None:
    assert advantages(kind, [reward] * size) == [0.0] * size


@given(rewards)
@pytest.mark.parametrize("kind", KINDS)
def test_unscored_trajectories_have_no_advantage(
    kind: GroupMean, values: list[float | None]
) -> None:
    result = advantages(kind, values)
    assert [r is None for r in result] == [v is None for v in values]
    single = advantages(kind, [v for v in values if v is not None])
    assert [r for r in result if r is not None] == single


@given(rewards)
def test_group_mean_advantages_sum_to_zero(values: list[float | None]) -> None:
    scored = [a for a in advantages(GroupMean(), values) if a is not None]
    assert math.fsum(scored) == pytest.approx(0, abs=1e-9)


def test_advantages_match_published_formulas() -> None:
    values = [0.0, 1.0, 1.0, 0.5]
    assert advantages(GroupMean(), values) == pytest.approx([-0.625, 0.375, 0.375, -0.125])
    std = (sum((v - 0.625) ** 2 for v in values) / 4) ** 0.5
    assert advantages(GroupStd(floor=0), values)[1] == pytest.approx(0.375 / std)
    assert advantages(GroupStd(floor=0, epsilon=0.5), values)[1] == pytest.approx(
        0.375 / (std + 0.5)
    )
    expected = [v - (sum(values) - v) / 3 for v in values]
    assert advantages(LeaveOneOut(), values) == pytest.approx(expected)


def test_small_spread_is_not_amplified() -> None:
    biggest = max(a or 0 for a in advantages(GroupStd(floor=0.1), [0.80, 0.81, 0.80, 0.80]))
    assert biggest < 0.1


def test_rounding_differences_are_no_signal() -> None:
    assert not rewards_differ([0.1 + 0.2, 0.3, None])
    assert not rewards_differ([1.0, None])
    assert rewards_differ([0.1, 0.2])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40))
def test_interval_contains_its_mean_and_stays_in_range(means: list[float]) -> None:
    result = interval(means)
    assert result is not None
    assert min(means) - 1e-9 <= result.low <= result.mean + 1e-9
    assert result.mean - 1e-9 <= result.high <= max(means) + 1e-9
    assert result == interval(means)


def test_interval_covers_the_true_mean_in_about_95_of_100() -> None:
    rng = random.Random(1)
    covered = 0
    for _ in range(200):
        result = interval([rng.gauss(0, 1) for _ in range(48)])
        assert result is not None
        covered += result.low <= 0 <= result.high
    assert 180 <= covered <= 199


def test_interval_of_empty_list_is_none() -> None:
    assert interval([]) is None
    assert mean_and_std([None]) == (None, None)


def test_mean_and_std_match_hand_computed_values() -> None:
    assert mean_and_std([1.0, None, 4.0, 7.0]) == (4.0, math.sqrt(6.0))
    assert mean_and_std([2.0]) == (2.0, 0.0)


@pytest.mark.parametrize(
    ("kind", "signal"), [(GroupMean(), True), (PlainReward(), True), (GroupStd(), True)]
)
def test_group_summary_describes_the_group(kind: GroupMean, signal: bool) -> None:
    group = [
        Trajectory(
            id=f"t{n}", split="validation", step=3, group=2, index=n, scenario_id="s", title="T",
            reward=reward,
        )
        for n, reward in enumerate((0.25, None, 0.75))
    ]  # fmt: skip
    assert group_summary(kind, group) == GroupSummary(
        split="validation", step=3, group=2, scenario_id="s", title="T",
        rewards=[0.25, None, 0.75], advantages=advantages(kind, [0.25, None, 0.75]),
        mean=0.5, std=0.25, signal=signal,
    )  # fmt: skip
    single = group_summary(kind, group[:1])
    assert (single.mean, single.std, single.signal) == (0.25, 0.0, isinstance(kind, PlainReward))


def test_interval_matches_hand_computed_values() -> None:
    """Bootstrap of two means with a fixed seed: a quarter of the resamples equal the lower mean."""
    assert interval([0.0, 1.0]) == Interval(mean=0.5, low=0.0, high=1.0, count=2)
    assert interval([0.5]) == Interval(mean=0.5, low=0.5, high=0.5, count=1)
    result = interval([0.0] * 50 + [1.0] * 50)
    assert result is not None
    assert (result.mean, result.low, result.high, result.count) == (0.5, 0.4, 0.6, 100)


def test_group_std_is_bounded_below_by_the_floor() -> None:
    result = advantages(GroupStd(floor=0.5, epsilon=0.0), [0.0, 0.2])
    assert result == pytest.approx([-0.2, 0.2])
    tiny = advantages(GroupStd(floor=0.0, epsilon=0.0), [0.0, 2e-9])
    assert tiny == pytest.approx([-1.0, 1.0])


def test_rewards_that_differ_beyond_rounding_have_signal() -> None:
    assert not rewards_differ([0.0, 1e-9])
    assert rewards_differ([0.0, 1.1e-9])
    assert not rewards_differ([])
