"""Paired comparison of two contestants: difference, interval, p-value and verdict. Pure.

A percentile bootstrap of few differences is too narrow (`python -m tests.bench.coverage` prints by
how much). The interval is therefore that of the sign-flip test: it contains exactly the shifts that
the test does not reject, so interval and p-value never contradict each other.

The sign-flip test (Fisher 1935, The Design of Experiments, §21): if two contestants are equal, each
difference could as well have the other sign. Its interval needs no search: the ends are order
statistics of the means of subsets of the differences (Hartigan 1969, JASA 64:1303, typical values).
For symmetric differences, as between equal contestants, it covers with at least the stated
probability for any number of scenarios.
"""

import math
import random
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence

from engine.protocol.records.comparison import Comparison, Word
from engine.protocol.records.runs import Interval
from engine.reward.advantage.group import TIE

LEVEL = 0.05
MOST_EXACT = 11
"""Maximum number of differences for the exact test; above it, `SAMPLED` random subsets."""
SAMPLED = 7999
"""Number of sampled subsets: p near 0.05 then has a standard error of 0.0035."""
BITS = 8
"""Number of differences per lookup table of precomputed subset sums."""
LEAST = 6
"""Minimum number of scenarios: with fewer, no difference is significant at 5 % (2/2⁵ > 0.05)."""


def compare(
    ours: Mapping[str, float], theirs: Mapping[str, float], against: str = ""
) -> Comparison:
    """Compare mean rewards by scenario id (`ours` − `theirs`); only scenarios that both have count.
    `against` is the name of the other model."""
    differences = [ours[name] - theirs[name] for name in theirs if name in ours]
    wins = sum(value > TIE for value in differences)
    losses = sum(value < -TIE for value in differences)
    difference, p = difference_of(differences)
    return Comparison(
        against=against,
        difference=difference,
        p=p,
        wins=wins,
        ties=len(differences) - wins - losses,
        losses=losses,
        word=verdict_word(difference),
    )


def difference_of(differences_N: Sequence[float]) -> tuple[Interval | None, float | None]:
    """Return (mean with its 95 % interval, two-sided p) of differences, one per scenario; (None,
    None) without any. p counts the observed signs among the flips, so it is never 0 (Phipson &
    Smyth 2010, SAGMB 9:39). Below `LEAST` scenarios the interval is the range of the differences
    and 0."""
    count = len(differences_N)
    if not count:
        return None, None
    means = subset_means(differences_N)
    not_above = bisect_right(means, TIE)
    not_below = len(means) - bisect_left(means, -TIE)
    p = min(1.0, 2 * (1 + min(not_above, not_below)) / (len(means) + 1))
    if count < LEAST:
        low, high = min(0.0, *differences_N), max(0.0, *differences_N)
    else:
        last = math.floor(LEVEL / 2 * (len(means) + 1)) - 1
        low, high = means[last], means[-last - 1]
    mean = math.fsum(differences_N) / count
    return Interval(mean=mean, low=min(low, mean), high=max(high, mean), count=count), p


def verdict_word(difference: Interval | None) -> Word:
    if difference is not None and difference.low > TIE:
        return "better"
    if difference is not None and difference.high < -TIE:
        return "worse"
    return "no difference shown"


def subset_means(values_N: Sequence[float]) -> list[float]:
    """Sorted means of the non-empty subsets: all 2^N − 1 for few values, else `SAMPLED` random ones
    with probability ½ per value and a fixed seed. Flipping the signs of a subset makes the sum at
    least as large exactly if the subset's mean is not above 0."""
    count = len(values_N)
    if count <= MOST_EXACT:
        sums = _subset_sums(values_N)
        return sorted(sums[subset] / subset.bit_count() for subset in range(1, 2**count))
    parts = [_subset_sums(values_N[first : first + BITS]) for first in range(0, count, BITS)]
    chance = random.Random(0)
    means: list[float] = []
    while len(means) < SAMPLED:
        if subset := chance.getrandbits(count):
            chosen = subset.to_bytes(len(parts), "little")
            total = sum(sums[bits] for sums, bits in zip(parts, chosen, strict=True))
            means.append(total / subset.bit_count())
    return sorted(means)


def _subset_sums(values_N: Sequence[float]) -> list[float]:
    """Sums of all 2^N subsets; bit n of the index tells whether value n is included."""
    sums = [0.0]
    for value in values_N:
        sums += [total + value for total in sums]
    return sums
