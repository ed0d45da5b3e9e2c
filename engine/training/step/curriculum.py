"""Curriculum: rewards of earlier visits → sampling weight of each scenario. Pure.

Input: groups of earlier steps as they were scored, oldest first. Output: one weight per scenario,
at least `floor` times the uniform weight. `curriculum_history.py` reads the visits from the store.

A visit is one group. With rewards of 0 and 1, the mean is the solve rate p and the variance p(1 −
p); other rewards count by their spread and by their position between the lowest and highest seen.
"""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

from engine.protocol.problems import ConfigError
from engine.protocol.records.runs import Scenario

Kind = Literal["frontier", "easy_first", "hard"]

RECENT = 4
"""Number of latest visits per scenario that count, since older ones reflect older policies."""
PRIOR = 2.0
"""Number of virtual rollouts in each estimate, half of them solved (Laplace's rule)."""
EASIEST = 0.25
"""Share of the scenarios from which `easy_first` samples at the start."""
WHOLE_AT = 0.5
"""Share of the run after which `easy_first` samples from all scenarios."""


class Visit(NamedTuple):
    """A group as scored before any label."""

    step: int
    scenario_id: str
    rewards: tuple[float, ...]
    """Rewards of the scored trajectories; empty without any."""


def scenario_weights(
    kind: Kind,
    scenarios: Sequence[Scenario],
    visits: Sequence[Visit],
    progress: float,
    floor: float,
) -> list[float]:
    """Sampling weights of the scenarios by earlier `visits` (groups); they sum to 1, and none falls
    below a share `floor` of a uniform one. `progress` is the finished share of the run.

    `frontier`: variance of a scenario's rewards, p(1 − p) for rewards of 0 and 1 (learnability:
    2408.15099; for language models 2502.12272); an unseen scenario counts as the most promising.
    `hard`: 1 − p (prioritized sampling, Kimi k1.5, 2501.12599, §2.3.4). `easy_first`: uniform over
    the easiest share c(t), with c growing linearly (competence, 1903.09848, eq. 5)."""
    recent = _recent(scenarios, visits)
    if kind == "frontier":
        raw = _spreads([recent[one.id] for one in scenarios])
    elif kind == "hard":
        raw = [1 - _solve_rate(recent[one.id], _scale(visits)) for one in scenarios]
    else:
        raw = _easiest(_hardness(scenarios, recent, _scale(visits)), progress)
    return _floored(raw, floor)


def check(kind: str, scenarios: Sequence[Scenario]) -> None:
    """Raise ConfigError if the curriculum `kind` needs difficulties and one is not a number."""
    if kind == "easy_first":
        for scenario in scenarios:
            difficulty(scenario)


def difficulty(scenario: Scenario) -> float | None:
    """Value of the scenario's `difficulty` key: higher is harder; None without one. Raises
    ConfigError for a value that is not a finite number."""
    value = scenario.data.get("difficulty")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ConfigError.of(
            "scenarios.bad_difficulty",
            f"The difficulty of scenario {scenario.id} is not a number.",
            'Write "difficulty": 2.5, where higher is harder; without it, difficulty is measured.',
            where=f"scenario {scenario.id}",
        )
    return float(value)


class _Scale(NamedTuple):
    low: float
    high: float

    def share(self, reward: float) -> float:
        """Position of a reward on the scale, from 0 (lowest reward) to 1 (highest)."""
        return (reward - self.low) / (self.high - self.low)


def _scale(visits: Sequence[Visit]) -> _Scale:
    """Range of the rewards: 0 to 1, or wider if rewards are outside."""
    seen = [reward for visit in visits for reward in visit.rewards]
    return _Scale(min([0.0, *seen]), max([1.0, *seen]))


def _recent(scenarios: Sequence[Scenario], visits: Sequence[Visit]) -> dict[str, list[Visit]]:
    found: dict[str, list[Visit]] = {one.id: [] for one in scenarios}
    for visit in visits:
        if visit.rewards and visit.scenario_id in found:
            found[visit.scenario_id].append(visit)
    return {name: own[-RECENT:] for name, own in found.items()}


def _solve_rate(visits: Sequence[Visit], scale: _Scale) -> float:
    shares = [scale.share(reward) for visit in visits for reward in visit.rewards]
    return (math.fsum(shares) + PRIOR / 2) / (len(shares) + PRIOR)


def _spreads(visits_S: Sequence[Sequence[Visit]]) -> list[float]:
    """Mean within-group variance of each scenario, on which the size of its advantages depends. The
    prior is the largest variance of any group, so that unseen scenarios rank high."""
    found_S = [[(_variance(one.rewards), len(one.rewards)) for one in own] for own in visits_S]
    most = max((variance for own in found_S for variance, _ in own), default=0.0) or 1.0
    return [
        (PRIOR * most + math.fsum(variance * count for variance, count in own))
        / (PRIOR + sum(count for _, count in own))
        for own in found_S
    ]


def _variance(rewards: Sequence[float]) -> float:
    mean = math.fsum(rewards) / len(rewards)
    return math.fsum((reward - mean) ** 2 for reward in rewards) / len(rewards)


def _hardness(
    scenarios: Sequence[Scenario], recent: dict[str, list[Visit]], scale: _Scale
) -> list[float]:
    """Rank of each scenario by difficulty, from 0 to 1: by its `difficulty`, else by measured
    rewards; 0.5 if neither is known."""
    by_key = {one.id: value for one in scenarios if (value := difficulty(one)) is not None}
    measured = {
        name: -_solve_rate(own, scale) for name, own in recent.items() if own and name not in by_key
    }
    ranks = {**_ranks(by_key), **_ranks(measured)}
    return [ranks.get(one.id, 0.5) for one in scenarios]


def _ranks(values: dict[str, float]) -> dict[str, float]:
    """Rank of each name from 0 to 1; equal values share the mean rank."""
    ordered = sorted(values.values())
    first = {value: place for place, value in reversed(list(enumerate(ordered)))}
    last = {value: place for place, value in enumerate(ordered)}
    width = 2 * max(len(ordered) - 1, 1)
    return {
        name: (first[value] + last[value]) / width if len(ordered) > 1 else 0.5
        for name, value in values.items()
    }


def _easiest(hardness: Sequence[float], progress: float) -> list[float]:
    """1 for scenarios in the easiest share (ties with its last included), else 0."""
    share = min(1.0, EASIEST + (1 - EASIEST) * progress / WHOLE_AT)
    limit = sorted(hardness)[max(1, math.ceil(share * len(hardness))) - 1]
    return [float(one <= limit) for one in hardness]


def _floored(raw: Sequence[float], floor: float) -> list[float]:
    total, equal = math.fsum(raw), 1 / len(raw)
    return [floor * equal + (1 - floor) * value / total for value in raw]
