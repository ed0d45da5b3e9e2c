"""Step metrics: an unknown value is omitted, never counted as zero."""

import pytest

from engine.protocol.records.runs import Trajectory
from engine.training.step.metrics import rewards


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
