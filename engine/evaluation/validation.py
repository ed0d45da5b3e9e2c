"""Validation: the agent on held-out scenarios with the current weights, with an interval."""

import time

from engine.protocol.events.run import ValidationFinished
from engine.protocol.records.runs import Interval, Scenario, Trajectory
from engine.reward.advantage.group import interval
from engine.rollout.groups import roll_out_groups
from engine.rollout.rollout import Stage
from engine.storage.run_folder.run import Run


async def validate(run: Run, stage: Stage, scenarios: list[Scenario], step: int) -> Interval | None:
    """Roll out every scenario and store the result, once per `step` even if a run resumes. Returns
    the mean reward with its interval; None if all rollouts are unscored."""
    for event in run.reader.events_of("validation.finished"):
        if isinstance(event, ValidationFinished) and event.step == step:
            return event.reward
    start_s = time.monotonic()
    await run.enter(step, "validating")
    size = run.config.train.validation_attempts
    groups = await roll_out_groups(run, stage, "validation", step, scenarios, size)
    means = scenario_means(groups)
    reward = interval(list(means.values()))
    unscored = sum(t.reward is None for group in groups for t in group)
    await run.say(
        ValidationFinished(
            step=step,
            reward=reward,
            scenarios=means,
            unscored=unscored,
            seconds=time.monotonic() - start_s,
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
