"""Step metrics: an unknown value is omitted, never counted as zero."""

import pytest

from engine.protocol.records.runs import Trajectory
from engine.training.step.metrics import MOST_AGENT_METRICS, agent_metrics, rewards, rollout_counts


def group(number: int, *values: float | None) -> list[Trajectory]:
    return [
        Trajectory(
            id=f"t{number}-{index}",
            split="train",
            step=1,
            group=number,
            index=index,
            scenario_id="s",
            title="s",
            reward=value,
        )
        for index, value in enumerate(values)
    ]


def test_group_with_one_scored_rollout_has_no_std() -> None:
    """As in ART's calculate_step_std_dev: groups of fewer than two scored rollouts do not count."""
    wide, single, unscored = group(0, 0.0, 1.0), group(1, 0.7, None), group(2, None, None)
    metrics = rewards([wide, single, unscored], "mean")
    assert metrics["groups/std_mean"] == pytest.approx(0.5)
    assert "groups/std_mean" not in rewards([single, unscored], "mean")
    assert metrics["unscored"] == 3


def test_metrics_of_the_agent_are_averaged_over_those_that_have_them() -> None:
    (one, two), (three,) = group(0, 0.1, 0.2), group(1, 0.3)
    returned = [{"moves": 4.0, "repetition": 0.5}, {"moves": 8.0}, {"found": 1.0}]
    everyone = [
        trajectory.model_copy(update={"metrics": metrics})
        for trajectory, metrics in zip((one, two, three), returned, strict=True)
    ]
    assert agent_metrics(everyone) == {"agent/found": 1.0, "agent/moves": 6.0}
    many = {f"m{number:03}": 1.0 for number in range(MOST_AGENT_METRICS + 9)} | {"z": 1.0}
    few = [one.model_copy(update={"metrics": many}), two.model_copy(update={"metrics": {"z": 3.0}})]
    found = agent_metrics(few)
    assert len(found) == MOST_AGENT_METRICS
    assert found["agent/z"] == 2.0


def test_counts_of_the_gateway_are_means_and_shares_over_all_trajectories() -> None:
    counts = [
        {"reasoning_tokens": 30.0, "malformed_calls": 2.0, "reasoning_closed": 3.0},
        {"capped_calls": 5.0},
        {},
    ]
    everyone = [
        trajectory.model_copy(update={"metrics": metrics, "turns": 4})
        for trajectory, metrics in zip(group(0, 0.1, 0.2, 0.3), counts, strict=True)
    ]
    assert rollout_counts(everyone) == {
        "tokens/reasoning_mean": 10.0,
        "reasoning_closed": 3 / 12,
        "malformed_calls": pytest.approx(1 / 3),
        "capped_calls": pytest.approx(1 / 3),
    }
    assert agent_metrics(everyone) == {}
    assert rollout_counts(everyone[2:]) == {}
