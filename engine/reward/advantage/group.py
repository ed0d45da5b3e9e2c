"""Group advantages from the rewards of one group. Pure functions.

Unscored siblings (None) are excluded from the statistics and get None. A group with equal rewards
gets exactly 0, whatever the rounding. `credit.py` converts the result to token advantages.
"""

import math
import random
from collections.abc import Sequence

from engine.protocol.config.algorithm import Advantage, GroupStd, LeaveOneOut, PlainReward
from engine.protocol.records.runs import GroupSummary, Interval, Trajectory

TIE = 1e-9
"""Rewards that differ by less are equal: rounding errors are not a signal."""

RESAMPLES = 2000


def advantages(kind: Advantage, rewards_G: Sequence[float | None]) -> list[float | None]:
    """Advantages of a group from its rewards, one per trajectory, in order; None for an unscored
    one.

    `group_mean`: R − mean (Dr. GRPO, 2503.20783). `group_std`: (R − mean) / (max(std, floor) + ε),
    with the population standard deviation (GRPO, 2402.03300). `leave_one_out`: R − mean of the
    others = n/(n−1) · (R − mean) (RLOO, 2402.14740). `reward`: R, ties included (REINFORCE++,
    2501.03262)."""
    if isinstance(kind, PlainReward):
        return list(rewards_G)
    scored = [reward for reward in rewards_G if reward is not None]
    if not rewards_differ(rewards_G):
        return [None if reward is None else 0.0 for reward in rewards_G]
    mean = math.fsum(scored) / len(scored)
    scale = _scale(kind, scored, mean)
    return [None if reward is None else (reward - mean) * scale for reward in rewards_G]


def has_signal(kind: Advantage, rewards_G: Sequence[float | None]) -> bool:
    """Whether a group contributes a gradient: its rewards differ or, if advantages are plain
    rewards, at least one trajectory is scored."""
    if isinstance(kind, PlainReward):
        return any(reward is not None for reward in rewards_G)
    return rewards_differ(rewards_G)


def rewards_differ(rewards_G: Sequence[float | None]) -> bool:
    """Whether at least two of the rewards that are not None differ."""
    scored = [reward for reward in rewards_G if reward is not None]
    return len(scored) > 1 and max(scored) - min(scored) > TIE


def mean_and_std(values: Sequence[float | None]) -> tuple[float | None, float | None]:
    """Mean and population standard deviation of the values that are not None; (None, None) if there
    are none."""
    known = [value for value in values if value is not None]
    if not known:
        return None, None
    mean = math.fsum(known) / len(known)
    return mean, math.sqrt(math.fsum((v - mean) ** 2 for v in known) / len(known))


def group_summary(kind: Advantage, siblings: Sequence[Trajectory]) -> GroupSummary:
    """Summary of a complete group with the advantages (`kind`) of its trajectories; mean, deviation
    and advantages ignore unscored ones."""
    first = siblings[0]
    rewards = [sibling.reward for sibling in siblings]
    mean, std = mean_and_std(rewards)
    return GroupSummary(
        split=first.split,
        step=first.step,
        group=first.group,
        scenario_id=first.scenario_id,
        title=first.title,
        rewards=rewards,
        advantages=advantages(kind, rewards),
        mean=mean,
        std=std,
        signal=has_signal(kind, rewards),
    )


def interval(means: Sequence[float]) -> Interval | None:
    """Mean with its 95 % percentile-bootstrap interval, from one mean per independent scenario
    (Efron 1979); None without any. The interval stays inside the range of the data, and its
    resamples have a fixed seed."""
    if not means:
        return None
    mean = math.fsum(means) / len(means)
    chance = random.Random(0)
    resampled = sorted(
        math.fsum(chance.choices(means, k=len(means))) / len(means) for _ in range(RESAMPLES)
    )
    tail = round(RESAMPLES * 0.025)
    return Interval(mean=mean, low=resampled[tail], high=resampled[-tail - 1], count=len(means))


def _scale(kind: Advantage, scored: list[float], mean: float) -> float:
    if isinstance(kind, LeaveOneOut):
        return len(scored) / (len(scored) - 1)
    if isinstance(kind, GroupStd):
        variance = math.fsum((reward - mean) ** 2 for reward in scored) / len(scored)
        return 1 / (max(math.sqrt(variance), kind.floor, TIE) + kind.epsilon)
    return 1.0
