"""Samples that play games, through a real engine: a warm-up, two training steps, validations."""

from itertools import islice
from pathlib import Path

import pytest

from engine.protocol.events import (
    GroupScored,
    RunFinished,
    StepFinished,
    ValidationFinished,
    WarmupFinished,
)
from engine.samples import create_project
from tests.engine_http.conftest import Engine

SHORT = {
    "model.dtype": "float32",
    "model.max_context": 2048,
    "model.rank": 4,
    "train.steps": 2,
    "train.groups": 2,
    "train.group_size": 4,
    "train.warmup.epochs": 3,
    "train.warmup.lr": 1e-2,
}
KEPT = {"demonstrations.jsonl": 32, "scenarios/train.jsonl": 8, "scenarios/validation.jsonl": 4}


def shorten(folder: Path) -> None:
    """Keep the first lines of each file of the project."""
    for name, count in KEPT.items():
        with (folder / name).open() as lines:
            first = list(islice(lines, count))
        (folder / name).write_text("".join(first))


@pytest.mark.parametrize(
    ("sample", "metrics"),
    [
        ("tic_tac_toe", {"legal", "won"}),
        ("codenames", {"assassin", "on_table", "found"}),
        ("temporal_clue", {"solved", "sensible"}),
    ],
)
def test_a_game_trains(
    engine: Engine, workspace: Path, tiny_model: Path, sample: str, metrics: set[str]
) -> None:
    project = workspace / sample
    create_project(project, sample)
    shorten(project)
    run = engine.train(project, **{**SHORT, "model.name": str(tiny_model)})
    events = engine.wait(run)
    assert isinstance(events[-1], RunFinished), events[-1]
    (warmed,) = [e for e in events if isinstance(e, WarmupFinished)]
    assert len(warmed.losses) == 3
    assert warmed.losses[-1] < warmed.losses[0]
    assert [e.step for e in events if isinstance(e, StepFinished)] == [1, 2]
    validations = [e for e in events if isinstance(e, ValidationFinished)]
    assert [(e.step, e.unscored, len(e.scenarios)) for e in validations] == [(0, 0, 4), (2, 0, 4)]
    rewards = [r for e in events if isinstance(e, GroupScored) for r in e.group.rewards]
    assert len(rewards) == 2 * 4 + 2 * 2 * 4
    assert all(reward is not None and 0 <= reward <= 1 for reward in rewards)
    played = engine.call(lambda client: client.siblings(run.id, "train", 2, 0)).trajectories
    assert [set(trajectory.metrics) >= metrics for trajectory in played] == [True] * 4
