"""Rewards of one group → advantages. Pure: values in, values out.

Unscored siblings (None) leave the statistics and get None; a group without differences gives
exactly 0 for everyone, whatever the rounding.
"""

import math
from collections.abc import Sequence

from engine.protocol.config import Advantage, GroupStd, LeaveOneOut
from engine.protocol.records import Interval

TIE = 1e-9
"""Rewards closer than this are equal: what floats leave behind is not signal."""


def advantages(kind: Advantage, rewards_G: Sequence[float | None]) -> list[float | None]:
    """One advantage per sibling, in order.

    `group_mean`: R − mean (Dr. GRPO, 2503.20783). `group_std`: (R − mean) / max(std, floor), with
    the population's standard deviation (GRPO, 2402.03300). `leave_one_out`: R − mean of the others
    = n/(n−1) · (R − mean) (RLOO, 2402.14740).
    """
    scored = [reward for reward in rewards_G if reward is not None]
    if not has_signal(rewards_G):
        return [None if reward is None else 0.0 for reward in rewards_G]
    mean = math.fsum(scored) / len(scored)
    scale = _scale(kind, scored, mean)
    return [None if reward is None else (reward - mean) * scale for reward in rewards_G]


def has_signal(rewards_G: Sequence[float | None]) -> bool:
    """Whether at least two scored siblings differ."""
    scored = [reward for reward in rewards_G if reward is not None]
    return len(scored) > 1 and max(scored) - min(scored) > TIE


def mean_and_std(values: Sequence[float | None]) -> tuple[float | None, float | None]:
    """Of the values that exist; population's standard deviation. (None, None) without any."""
    known = [value for value in values if value is not None]
    if not known:
        return None, None
    mean = math.fsum(known) / len(known)
    return mean, math.sqrt(math.fsum((v - mean) ** 2 for v in known) / len(known))


def interval(means: Sequence[float]) -> Interval | None:
    """Mean with its 95 % confidence interval over independent scenarios (Student's t)."""
    if not means:
        return None
    mean, std = mean_and_std(means)
    assert mean is not None
    assert std is not None
    n = len(means)
    if n == 1:
        return Interval(mean=mean, low=mean, high=mean, count=1)
    half = student_t(n - 1) * std * math.sqrt(n / (n - 1)) / math.sqrt(n)
    return Interval(mean=mean, low=mean - half, high=mean + half, count=n)


def student_t(freedom: int) -> float:
    """The 97.5 % quantile of Student's t, within 1 % from 2 degrees of freedom up.

    Cornish–Fisher expansion around the normal quantile (Abramowitz & Stegun 26.7.5).
    """
    if freedom == 1:
        return 12.706
    z, v = 1.959964, float(freedom)
    terms = (
        (z**3 + z) / 4 / v,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96 / v**2,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384 / v**3,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160 / v**4,
    )
    return z + sum(terms)


def _scale(kind: Advantage, scored: list[float], mean: float) -> float:
    if isinstance(kind, LeaveOneOut):
        return len(scored) / (len(scored) - 1)
    if isinstance(kind, GroupStd):
        variance = math.fsum((reward - mean) ** 2 for reward in scored) / len(scored)
        return 1 / max(math.sqrt(variance), kind.floor, TIE)
    return 1.0
