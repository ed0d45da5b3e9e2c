"""Results of an evaluation: stored trajectories → standings with intervals. Pure.

A contestant's mean on a scenario is the mean of its variants' means. If variants are compared as a
whole, only those scored for both sides count. All scenarios have equal weight.
"""

import math
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from engine.evaluation.comparison import compare
from engine.protocol.records.comparison import Comparison, EvaluationResult, Standing, TagStandings
from engine.protocol.records.runs import Scenario, TrajectorySummary
from engine.protocol.requests.evaluation import Contestant, Entry, EvaluationPlan
from engine.reward.advantage.group import interval

Span = tuple[float, float]
"""Start and end time of a rollout, in Unix seconds."""
Cells = Mapping[tuple[str, str], float]
"""Mean reward by (scenario, variant)."""


class Attempts(NamedTuple):
    """Finished rollouts of an evaluation."""

    rows: Sequence[TrajectorySummary]
    spans: Mapping[str, Span]
    """Start and end of each rollout by trajectory id."""
    usd_per_hour: float | None


class Side(NamedTuple):
    """Trajectories and scores of one contestant, or of one of its variants."""

    rows: list[TrajectorySummary]
    cells: Cells


def result_of(
    plan: EvaluationPlan,
    scenarios: Sequence[Scenario],
    attempts: Attempts,
    judged: bool,
    precision: str = "",
) -> EvaluationResult:
    """Return the result of an evaluation from its stored trajectories (`attempts`). `judged`:
    rewards include judge scores; `precision`: data type of the models' weights (empty: unknown)."""
    by_tag = scenarios_by_tag(scenarios)
    return EvaluationResult(
        done=len(attempts.rows),
        total=plan.total,
        scenarios=plan.scenarios,
        attempts=plan.attempts,
        seed=plan.seed,
        judged=judged,
        precision=precision,
        standings=standings(plan, attempts, None),
        variants=by_variant(plan, attempts),
        tags=[
            TagStandings(tag=tag, scenarios=len(ids), standings=standings(plan, attempts, ids))
            for tag, ids in sorted(by_tag.items(), key=lambda item: (-len(item[1]), item[0]))
        ],
    )


def scenarios_by_tag(scenarios: Iterable[Scenario]) -> dict[str, set[str]]:
    """Return scenario ids by tag, from the keys `tag` (text) and `tags` (list)."""
    found: dict[str, set[str]] = {}
    for scenario in scenarios:
        values = scenario.data.get("tags")
        tags = [scenario.data.get("tag"), *(values if isinstance(values, list) else [values])]
        for tag in tags:
            if isinstance(tag, str | int) and str(tag).strip():
                found.setdefault(str(tag).strip(), set()).add(scenario.id)
    return found


def standings(
    plan: EvaluationPlan, attempts: Attempts, scenarios: Collection[str] | None
) -> list[Standing]:
    """Return the result of each compared model over all its system prompts, on the scenarios with
    ids in `scenarios` (None: all); all but the first are compared with the first. `attempts` are
    the stored trajectories."""
    sides = [
        _side([e for e in plan.entries if e.contestant == one], attempts, scenarios)
        for one in plan.contestants
    ]
    first = plan.contestants[0].name
    return [
        _standing(one, "", side, attempts, None if side is sides[0] else (first, sides[0]))
        for one, side in zip(plan.contestants, sides, strict=True)
    ]


def by_variant(plan: EvaluationPlan, attempts: Attempts) -> list[Standing]:
    """Return the result of each model with each variant (system prompt); empty without variants.
    Other models are compared with the first one under the same variant, and variants of the first
    one with its first variant."""
    if not plan.variants:
        return []
    sides = {entry.label: _side([entry], attempts, None) for entry in plan.entries}
    found = []
    for entry in plan.entries:
        assert entry.variant is not None
        rival = Entry(plan.contestants[0], entry.variant)
        if entry == rival:
            rival = plan.entries[0]
        versus = None if entry == rival else (rival.label, sides[rival.label])
        side = sides[entry.label]
        found.append(_standing(entry.contestant, entry.variant.name, side, attempts, versus))
    return found


def _side(entries: list[Entry], attempts: Attempts, scenarios: Collection[str] | None) -> Side:
    several = len(entries) > 1  # one variant alone may be compared with another
    variants = {e.label: e.variant.name if e.variant and several else "" for e in entries}
    rows = [
        row
        for row in attempts.rows
        if row.contestant in variants and (scenarios is None or row.scenario_id in scenarios)
    ]
    rewards: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        if row.reward is not None:
            cell = (row.scenario_id, variants[row.contestant])
            rewards.setdefault(cell, []).append(row.reward)
    return Side(rows, {cell: statistics.fmean(of) for cell, of in rewards.items()})


def _standing(
    contestant: Contestant,
    variant: str,
    side: Side,
    attempts: Attempts,
    versus: tuple[str, Side] | None,
) -> Standing:
    rows = side.rows
    seconds = sorted(row.duration_s for row in rows)
    ended = [row for row in rows if row.reward is not None or not row.awaits_judge]
    return Standing(
        name=contestant.name,
        kind=contestant.kind,
        variant=variant,
        attempts=len(rows),
        unscored=sum(row.reward is None for row in ended),
        reward=interval(list(_scenario_means(side.cells, side.cells).values())),
        latency_median_s=statistics.median(seconds) if seconds else None,
        latency_p90_s=quantile(seconds, 0.9) if seconds else None,
        tokens_mean=statistics.fmean(row.sampled_tokens for row in rows) if rows else None,
        usd_per_1000=_usd_per_1000(contestant, rows, attempts),
        versus=_versus(side.cells, *versus) if versus else None,
    )


def _versus(ours: Cells, name: str, other: Side) -> Comparison:
    both = ours.keys() & other.cells.keys()
    return compare(_scenario_means(ours, both), _scenario_means(other.cells, both), name)


def _scenario_means(cells: Cells, wanted: Collection[tuple[str, str]]) -> dict[str, float]:
    by_scenario: dict[str, list[float]] = {}
    for (scenario, variant), mean in cells.items():
        if (scenario, variant) in wanted:
            by_scenario.setdefault(scenario, []).append(mean)
    return {scenario: statistics.fmean(means) for scenario, means in by_scenario.items()}


def _usd_per_1000(
    contestant: Contestant, rows: Sequence[TrajectorySummary], attempts: Attempts
) -> float | None:
    if not rows:
        return None
    if contestant.kind == "provider":
        return 1000 * math.fsum(row.cost_usd or 0.0 for row in rows) / len(rows)
    if attempts.usd_per_hour is None:
        return None
    hours = (
        covered_seconds(attempts.spans[row.id] for row in rows if row.id in attempts.spans) / 3600
    )
    return 1000 * hours * attempts.usd_per_hour / len(rows)


def covered_seconds(spans: Iterable[Span]) -> float:
    """Seconds during which at least one rollout ran: length of the union of the spans."""
    total, reached = 0.0, -math.inf
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return total


def quantile(ordered: Sequence[float], share: float) -> float:
    """Quantile at `share` of sorted values, interpolated (Hyndman & Fan 1996, definition 7)."""
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])
