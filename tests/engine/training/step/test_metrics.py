"""Metrics of a step: what is not known is left out, never counted as zero."""

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


def test_one_attempt_alone_has_no_spread() -> None:
    """As in ART's calculate_step_std_dev: groups of fewer than two scored attempts do not count."""
    wide, alone, nobody = group(0, 0.0, 1.0), group(1, 0.7, None), group(2, None, None)
    found = rewards([wide, alone, nobody], "mean")
    assert found["groups/std_mean"] == pytest.approx(0.5)
    assert "groups/std_mean" not in rewards([alone, nobody], "mean")
    assert found["unscored"] == 3
