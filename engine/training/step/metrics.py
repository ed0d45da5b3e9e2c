"""Metrics of a step from its groups, by their documented names (protocol/records/metrics.py)."""

import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from statistics import fmean

from engine.judge.calibration.agreement import kendall_tau
from engine.protocol.config.algorithm import Advantage
from engine.protocol.records.judging import PART as RULER
from engine.protocol.records.labels import field_part, is_label_part
from engine.protocol.records.metrics import ROLLOUT_COUNTS
from engine.protocol.records.runs import Phase, Trajectory
from engine.reward.advantage.group import has_signal, mean_and_std
from engine.reward.reward_hacking import NAMES
from engine.storage.run_folder.run import Run

MOST_AGENT_METRICS = 32
"""Maximum number of metrics of the agent per step."""


@dataclass
class Clock:
    """Timer of the phases of one step, in seconds."""

    start_s: float = field(default_factory=time.monotonic)
    phases: dict[str, float] = field(default_factory=dict)

    @contextlib.asynccontextmanager
    async def phase(self, run: Run, step: int, name: Phase) -> AsyncIterator[None]:
        start_s = time.monotonic()
        await run.enter(step, name)
        yield
        self.phases[name] = time.monotonic() - start_s

    def seconds(self, name: str) -> float:
        return max(self.phases.get(name, 0.0), 1e-9)

    def metrics(self) -> dict[str, float]:
        total = time.monotonic() - self.start_s
        return {f"time_s/{k}": v for k, v in self.phases.items()} | {"time_s/step": total}


def step_metrics(
    groups: list[list[Trajectory]], kind: Advantage, extra_metrics: dict[str, float], clock: Clock
) -> dict[str, float]:
    """Metrics of a step by their documented names (protocol/records/metrics.py), including times of
    the `clock` and `extra_metrics`, for example of the policy; unscored trajectories are excluded
    from every mean."""
    everyone = [trajectory for group in groups for trajectory in group]
    metrics = rewards(groups, kind)
    metrics |= lengths(everyone) | rollout_counts(everyone)
    sampled = sum(t.sampled_tokens for t in everyone)
    metrics["tokens_per_s/sample"] = sampled / clock.seconds("rolling_out")
    return metrics | extra_metrics | clock.metrics()


def rewards(groups: list[list[Trajectory]], kind: Advantage) -> dict[str, float]:
    """Reward metrics of a step's groups, by name. `kind` is the advantage estimator, which decides
    which groups count as having no signal."""
    everyone = [trajectory for group in groups for trajectory in group]
    scored = [t for t in everyone if t.reward is not None]
    known = [t.reward for t in scored if t.reward is not None]
    metrics = {"unscored": float(len(everyone) - len(scored)), "trajectories": float(len(everyone))}
    if known:
        mean, std = mean_and_std(known)
        assert mean is not None
        assert std is not None
        metrics |= {"reward/mean": mean, "reward/std": std, "reward/max": max(known)}
    for name in sorted({name for t in scored for name in t.parts}):
        values = [t.parts[name] for t in scored if name in t.parts]
        metrics[f"reward/part/{name}"] = sum(values) / len(values)
    compared = [group for group in groups if sum(t.reward is not None for t in group) > 1]
    spreads = [mean_and_std([t.reward for t in group])[1] for group in compared]
    if known := [spread for spread in spreads if spread is not None]:
        metrics["groups/std_mean"] = fmean(known)  # one attempt alone has no spread, not one of 0
    silent = sum(not has_signal(kind, [t.reward for t in group]) for group in groups)
    metrics["groups/no_signal"] = silent / len(groups)
    metrics["groups/labelled"] = float(sum(any(t.labels for t in group) for group in groups))
    for name in NAMES:
        known = [t.metrics[name] for t in everyone if name in t.metrics]
        if known:
            metrics[f"watch/{name}"] = fmean(known)
    metrics |= agent_metrics(everyone)
    metrics |= field_metrics(everyone)
    if (tau := judge_and_rules(groups)) is not None:
        metrics["judge/rules"] = tau
    return metrics


def agent_metrics(everyone: list[Trajectory]) -> dict[str, float]:
    """Mean of each metric that the agent returned, over the trajectories that have it, as
    `agent/NAME`; at most `MOST_AGENT_METRICS`, those that most trajectories have."""
    own = {*NAMES, *ROLLOUT_COUNTS}
    names = Counter(name for t in everyone for name in t.metrics if name not in own)
    common = sorted(names, key=lambda name: (-names[name], name))[:MOST_AGENT_METRICS]
    return {
        f"agent/{name}": fmean(t.metrics[name] for t in everyone if name in t.metrics)
        for name in sorted(common)
    }


def field_metrics(everyone: list[Trajectory]) -> dict[str, float]:
    """Custom label fields over the trajectories that have a value: mean of a number as
    `label/NAME`, share of each given choice as `label/NAME/CHOICE`; at most `MOST_AGENT_METRICS`
    fields."""
    found: dict[str, float] = {}
    for name in sorted({name for t in everyone for name in t.fields})[:MOST_AGENT_METRICS]:
        values = [t.fields[name] for t in everyone if name in t.fields]
        key = field_part(name)
        if numbers := [value for value in values if isinstance(value, float)]:
            found[key] = fmean(numbers)
        for choice in sorted({value for value in values if isinstance(value, str)}):
            found[f"{key}/{choice.replace(' ', '_')}"] = values.count(choice) / len(values)
    return found


def lengths(everyone: list[Trajectory]) -> dict[str, float]:
    """Sampled tokens per trajectory, and the share of truncated trajectories by limit."""
    counts = sorted(t.sampled_tokens for t in everyone)
    last = len(counts) - 1
    return {
        "tokens/completion_mean": sum(counts) / len(counts),
        "tokens/completion_p10": float(counts[round(last * 0.1)]),
        "tokens/completion_p50": float(counts[round(last * 0.5)]),
        "tokens/completion_p90": float(counts[round(last * 0.9)]),
        "truncated": sum(t.truncated for t in everyone) / len(everyone),
        **{
            f"truncated/{limit}": count / len(everyone)
            for limit, count in Counter(t.cut_by for t in everyone if t.cut_by).items()
        },
    }


def rollout_counts(everyone: list[Trajectory]) -> dict[str, float]:
    """Mean reasoning tokens per trajectory, the share of answers whose reasoning was closed by the
    thinking budget, and the shares of trajectories with malformed tool calls and with capped model
    calls; those that are 0 in all trajectories are left out."""
    reasoning, closed, *calls = ROLLOUT_COUNTS
    found: dict[str, float] = {}
    if total := sum(t.metrics.get(reasoning, 0.0) for t in everyone):
        found["tokens/reasoning_mean"] = total / len(everyone)
    if answers := sum(t.metrics.get(closed, 0.0) for t in everyone):
        found[closed] = answers / sum(t.turns for t in everyone)
    for name in calls:
        if count := sum(name in t.metrics for t in everyone):
            found[name] = count / len(everyone)
    return found


def judge_and_rules(groups: list[list[Trajectory]]) -> float | None:
    """Mean Kendall τ between the judge's scores and the rule-based rewards within groups, over
    groups that have both; None without any."""
    taus = []
    for group in groups:
        both = [(t.parts[RULER], rules) for t in group if (rules := _rules(t)) is not None]
        tau = kendall_tau([a for a, _ in both], [b for _, b in both])
        taus += [tau] if tau is not None else []
    return fmean(taus) if taus else None


def _rules(one: Trajectory) -> float | None:
    """Sum of the rule-based parts of a judged trajectory; None if it has none or is not judged."""
    rules = [
        value for name, value in one.parts.items() if name != RULER and not is_label_part(name)
    ]
    return sum(rules) if rules and RULER in one.parts else None
