"""Validation: the agent on held-out scenarios with the current weights, with an interval."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from engine.evaluation.pairwise import PairwiseJudge, validations_of
from engine.protocol.events.run import ValidationFinished
from engine.protocol.records.judging import Verdict
from engine.protocol.records.runs import Interval, Scenario, Trajectory
from engine.reward.advantage.group import interval
from engine.rollout.groups import roll_out_groups
from engine.rollout.rollout import Stage
from engine.storage.run_folder.run import Run


async def validate(run: Run, stage: Stage, scenarios: list[Scenario], step: int) -> Interval | None:
    """Roll out every scenario and store the result, once per `step` even if a run resumes. Returns
    the mean reward with its interval; None if all rollouts are unscored.

    In a training run with a judge, the judge compares the rollouts with those of earlier steps,
    since its scores are relative: the result is the win rate against the first validation."""
    for event in validations_of(run):
        if event.step == step:
            return event.reward
    start_s = time.monotonic()
    await run.enter(step, "validating")
    size = run.config.train.validation_attempts
    panel = stage.judge if run.spec.kind == "train" else None
    judge = await asyncio.to_thread(PairwiseJudge, run, panel, step) if panel else None
    if judge and judge.waits:
        unjudged = replace(stage, judge=None)
        groups = await roll_out_groups(run, unjudged, "validation", step, scenarios, size)
    else:
        groups = await roll_out_groups(run, stage, "validation", step, scenarios, size, judge=judge)
    against = await judge.comparisons(groups) if judge else ()
    means = {} if judge and judge.relative else scenario_means(groups)
    reward = interval(list(means.values()))
    win_rates = await asyncio.to_thread(judge.win_rates, step, against) if judge else {}
    unscored = sum(t.reward is None and not t.awaits_judge for group in groups for t in group)
    ids = [one.id for group in groups for one in group]
    verdicts = await asyncio.to_thread(run.reader.verdicts, ids) if judge else []
    await run.say(
        ValidationFinished(
            step=step,
            reward=reward,
            scenarios=means,
            unscored=unscored,
            seconds=time.monotonic() - start_s,
            against=against,
            win_rates=win_rates,
            criteria=criterion_means(groups, verdicts),
        )
    )
    return reward


def scenario_means(groups: list[list[Trajectory]]) -> dict[str, float]:
    """Mean reward of the scored trajectories per scenario; scenarios without any are left out."""
    means = {}
    for group in groups:
        rewards = [t.reward for t in group if t.reward is not None]
        if rewards:
            means[group[0].scenario_id] = sum(rewards) / len(rewards)
    return means


def criterion_means(
    groups: Sequence[Sequence[Trajectory]], verdicts: Sequence[Verdict]
) -> dict[str, Interval]:
    """Mean score in [0, 1] of each criterion over the scenarios, with its 95 % interval. Scores of
    a scenario's rollouts by all judges are averaged first; invalid verdicts are left out."""
    scenarios = {one.id: one.scenario_id for group in groups for one in group}
    scores: dict[str, dict[str, list[float]]] = {}
    for verdict in verdicts:
        if verdict.score is None:
            continue
        for name, score in verdict.criteria.items():
            of_scenario = scores.setdefault(name, {})
            of_scenario.setdefault(scenarios[verdict.trajectory_id], []).append(score)
    means = {name: interval([fmean(one) for one in by.values()]) for name, by in scores.items()}
    return {name: mean for name, mean in means.items() if mean is not None}
