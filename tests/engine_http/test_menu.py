"""Every preset trains a real model over HTTP, and a resumed run is bit-identical."""

from pathlib import Path

import pytest

from engine.protocol.config.presets import PRESETS
from engine.protocol.events.run import (
    Event,
    GroupScored,
    RunFinished,
    StepExtended,
    StepFinished,
    UnknownEvent,
)
from engine.protocol.records.runs import RunSummary
from engine.protocol.requests.runs import Command, TrajectoryQuery
from tests.engine_http.conftest import AGENT, Engine, delete_checkpoints_after, make_project

ALGORITHM = "train.algorithm"
OFTEN_TIED = AGENT.replace(
    "sum(c.isalpha() for c in reply) / 8", "float(reply[:1] in 'aeiouAEIOU')"
)


def checkpoint_files(run: RunSummary, step: int) -> dict[str, bytes]:
    folder = Path(run.path) / "checkpoints" / f"step-{step:06d}"
    return {p.name: p.read_bytes() for p in folder.rglob("*.safetensors")}


REPLAYED: dict[str, dict[str, object]] = {
    "ppo": {f"{ALGORITHM}.updates": 2},
    "gspo": {f"{ALGORITHM}.updates": 2},
    "atelier": {f"{ALGORITHM}.kl": 0.1, f"{ALGORITHM}.kl_in": "advantage"},
}
BRIEF = {"train.groups": 4, "train.validate_every": 0}


def check_steps(run: RunSummary, events: list[Event | UnknownEvent], preset: str) -> None:
    """Check that every step updated the weights, and has the metrics of its preset."""
    assert isinstance(events[-1], RunFinished), events[-1]
    steps = [e for e in events if isinstance(e, StepFinished)]
    assert not any(step.skipped or step.dropped for step in steps)
    assert steps[0].metrics["grad_norm"] > 0
    assert ("value/loss" in steps[0].metrics) == (preset == "ppo")
    assert ("reward/part/overlong" in steps[0].metrics) == (preset == "dapo")
    assert ("value.safetensors" in checkpoint_files(run, len(steps))) == (preset == "ppo")


@pytest.mark.parametrize("preset", [one for one in PRESETS if one not in REPLAYED])
def test_every_preset_trains(engine: Engine, project: Path, preset: str) -> None:
    run = engine.train(project, **{"train.steps": 2, **BRIEF, f"{ALGORITHM}.preset": preset})
    events = engine.wait(run)
    check_steps(run, events, preset)
    first = next(e for e in events if isinstance(e, StepFinished))
    assert ("kl" in first.metrics) == (preset in ("grpo", "rloo"))


@pytest.mark.parametrize("preset", REPLAYED)
def test_resumed_run_is_bit_identical(engine: Engine, project: Path, preset: str) -> None:
    overrides = {f"{ALGORITHM}.preset": preset, **REPLAYED[preset]}
    run = engine.train(project, **{"train.steps": 4, **BRIEF}, **overrides)
    events = engine.wait(run)
    check_steps(run, events, preset)
    first = next(e for e in events if isinstance(e, StepFinished))
    assert ("kl" in first.metrics) == (f"{ALGORITHM}.kl" in overrides)
    straight = checkpoint_files(run, 4)
    delete_checkpoints_after(run, 2)
    engine.call(lambda c: c.command(run.id, Command(action="resume")))
    assert isinstance(engine.wait(run)[-1], RunFinished)
    assert checkpoint_files(run, 4) == straight


def test_refills_replace_groups_without_signal_and_resume_identically(
    workspace: Path, tiny_model: Path, engine: Engine
) -> None:
    project = make_project(workspace / "tied", tiny_model, OFTEN_TIED)
    run = engine.train(project, **{"train.steps": 4, f"{ALGORITHM}.refills": 2})
    events = engine.wait(run)
    extended = [e for e in events if isinstance(e, StepExtended)]
    assert extended, "every group had a signal"
    scored = [e.group for e in events if isinstance(e, GroupScored) and e.group.split == "train"]
    planned = {(e.step, g.group): g.scenario_id for e in extended for g in e.groups}
    assert planned.items() <= {(g.step, g.group): g.scenario_id for g in scored}.items()
    for step in {e.step for e in extended}:
        groups = [g for g in scored if g.step == step]
        assert sum(g.signal for g in groups) <= 2
        assert len({g.scenario_id for g in groups}) == min(4, len(groups))
    straight, count = checkpoint_files(run, 4), engine.call(lambda c: c.run(run.id)).trajectories
    delete_checkpoints_after(run, 2)
    engine.call(lambda c: c.command(run.id, Command(action="resume")))
    again = [e for e in engine.wait(run) if isinstance(e, StepExtended)]
    assert checkpoint_files(run, 4) == straight
    assert engine.call(lambda c: c.run(run.id)).trajectories == count
    assert again == extended


def test_groups_without_signal_train_the_value_head(engine: Engine, project: Path) -> None:
    agent = project / "agent.py"
    agent.write_text(agent.read_text().replace("sum(c.isalpha() for c in reply) / 8", "0.3"))
    run = engine.train(
        project, **{"train.steps": 2, f"{ALGORITHM}.preset": "ppo", f"{ALGORITHM}.updates": 1}
    )
    steps = [e for e in engine.wait(run) if isinstance(e, StepFinished)]
    assert not any(step.skipped for step in steps)
    assert steps[0].metrics["groups/no_signal"] == 0
    assert 0 < steps[0].metrics["value/loss"] <= 0.3**2 / 2


def test_overlong_penalty_applies_to_training_only(engine: Engine, project: Path) -> None:
    run = engine.train(
        project,
        **{"train.steps": 1, f"{ALGORITHM}.overlong": 1.0, f"{ALGORITHM}.mask_truncated": True},
    )
    engine.wait(run)
    pages = {
        split: engine.call(
            lambda c, split=split: c.trajectories(run.id, TrajectoryQuery(split=split))
        )
        for split in ("train", "validation")
    }
    for one in pages["train"].items:
        length = one.sampled_tokens
        assert one.parts["overlong"] == pytest.approx(-length / 8)
        assert one.reward == pytest.approx(sum(one.parts.values()))
    assert all("overlong" not in one.parts for one in pages["validation"].items)
