"""Coverage of intervals for the difference of two contestants: how often they contain the true
value.

`python -m tests.bench.coverage [--seeds N]`

Two equal contestants (truth 0) with rewards of 0 or 1 (scenarios differ in difficulty) and with
continuous rewards, and two unequal ones with skewed rewards. Three kinds of interval: percentile
bootstrap, Student's t, and Atelier's. 95.0 is correct, less is too narrow.
"""

import argparse
import math
import random
import statistics
from collections.abc import Callable
from typing import NamedTuple

from engine.evaluation.comparison import difference_of
from engine.reward.advantage.group import interval

SIZES = (6, 8, 12, 20, 35, 50, 100)
T_975 = {5: 2.571, 7: 2.365, 11: 2.201, 19: 2.093, 34: 2.032, 49: 2.010, 99: 1.984}


class Case(NamedTuple):
    words: str
    draw: Callable[[random.Random], float]
    """Difference at one scenario."""
    truth: float


def pass_or_fail(chance: random.Random) -> float:
    """Difference of one rollout each on a scenario with a success probability of its own."""
    solved = chance.betavariate(1, 1)
    return float(chance.random() < solved) - float(chance.random() < solved)


def rarely(chance: random.Random) -> float:
    """Like `pass_or_fail` with hardly any success: most differences are ties."""
    solved = chance.betavariate(0.5, 6)
    return float(chance.random() < solved) - float(chance.random() < solved)


def continuous(chance: random.Random) -> float:
    spread = chance.uniform(0.05, 0.3)
    return chance.gauss(0, spread) - chance.gauss(0, spread)


def skewed(chance: random.Random) -> float:
    """Skewed differences: one contestant gains a little everywhere and much on few scenarios."""
    return chance.expovariate(1.0)


CASES = (
    Case("equal, 0 or 1", pass_or_fail, 0.0),
    Case("equal, rarely 1", rarely, 0.0),
    Case("equal, continuous", continuous, 0.0),
    Case("unequal, skewed", skewed, 1.0),
)


def ours(values: list[float]) -> tuple[float, float]:
    difference, _ = difference_of(values)
    assert difference is not None
    return difference.low, difference.high


def percentile(values: list[float]) -> tuple[float, float]:
    bootstrap = interval(values)
    assert bootstrap is not None
    return bootstrap.low, bootstrap.high


def student(values: list[float]) -> tuple[float, float]:
    mean = statistics.fmean(values)
    reach = T_975[len(values) - 1] * statistics.stdev(values) / math.sqrt(len(values))
    return mean - reach, mean + reach


WAYS = {"percentile": percentile, "student": student, "ours": ours}


def held(
    case: Case, size: int, seeds: int, way: Callable[[list[float]], tuple[float, float]]
) -> int:
    """Return in how many simulated evaluations the interval contains the truth."""
    count = 0
    for seed in range(seeds):
        chance = random.Random(f"{case.words} {size} {seed}")
        low, high = way([case.draw(chance) for _ in range(size)])
        count += low - 1e-9 <= case.truth <= high + 1e-9
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000)
    seeds = parser.parse_args().seeds
    print(f"Share of {seeds} simulated evaluations whose 95 % interval holds the truth, in %")
    print(f"{'':20}{'scenarios':>10}" + "".join(f"{name:>12}" for name in WAYS))
    for case in CASES:
        for size in SIZES:
            shares = [100 * held(case, size, seeds, way) / seeds for way in WAYS.values()]
            print(f"{case.words:20}{size:>10}" + "".join(f"{share:>12.1f}" for share in shares))


if __name__ == "__main__":
    main()
