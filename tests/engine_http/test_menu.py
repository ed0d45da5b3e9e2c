"""Every named method trains a real model over real HTTP, and trains it again to the same byte."""

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
from tests.engine_http.conftest import AGENT, Engine, forget_after, make_project

ALGORITHM = "train.algorithm"
OFTEN_TIED = AGENT.replace("sum(c.isalpha() for c in said) / 8", "float(said[:1] in 'aeiouAEIOU')")


def files(run: RunSummary, step: int) -> dict[str, bytes]:
    folder = Path(run.path) / "checkpoints" / f"step-{step:06d}"
    return {p.name: p.read_bytes() for p in folder.rglob("*.safetensors")}


REPLAYED: dict[str, dict[str, object]] = {
    "ppo": {f"{ALGORITHM}.updates": 2},
    "gspo": {f"{ALGORITHM}.updates": 2},
    "atelier": {f"{ALGORITHM}.kl": 0.1, f"{ALGORITHM}.kl_in": "advantage"},
}
BRIEF = {"train.groups": 4, "train.validate_every": 0}


def check_steps(run: RunSummary, events: list[Event | UnknownEvent], preset: str) -> None:
    """Every step learned, and measured what this method is made of."""
    assert isinstance(events[-1], RunFinished), events[-1]
    steps = [e for e in events if isinstance(e, StepFinished)]
    assert not any(step.skipped or step.dropped for step in steps)
    assert steps[0].metrics["grad_norm"] > 0
    assert ("value/loss" in steps[0].metrics) == (preset == "ppo")
    assert ("reward/part/overlong" in steps[0].metrics) == (preset == "dapo")
    assert ("value.safetensors" in files(run, len(steps))) == (preset == "ppo")


@pytest.mark.parametrize("preset", [one for one in PRESETS if one not in REPLAYED])
def test_every_preset_trains(engine: Engine, project: Path, preset: str) -> None:
    run = engine.train(project, **{"train.steps": 2, **BRIEF, f"{ALGORITHM}.preset": preset})
    events = engine.wait(run)
    check_steps(run, events, preset)
    first = next(e for e in events if isinstance(e, StepFinished))
    assert ("kl" in first.metrics) == (preset in ("grpo", "rloo"))


@pytest.mark.parametrize("preset", REPLAYED)
def test_a_replay_gives_the_same_bytes(engine: Engine, project: Path, preset: str) -> None:
    overrides = {f"{ALGORITHM}.preset": preset, **REPLAYED[preset]}
    run = engine.train(project, **{"train.steps": 4, **BRIEF}, **overrides)
    events = engine.wait(run)
    check_steps(run, events, preset)
    first = next(e for e in events if isinstance(e, StepFinished))
    assert ("kl" in first.metrics) == (f"{ALGORITHM}.kl" in overrides)
    straight = files(run, 4)
    forget_after(run, 2)
    engine.call(lambda c: c.command(run.id, Command(action="resume")))
    assert isinstance(engine.wait(run)[-1], RunFinished)
    assert files(run, 4) == straight


def test_refills_make_up_for_ties_and_replay_alike(
    workspace: Path, tiny_model: Path, engine: Engine
) -> None:
    project = make_project(workspace / "tied", tiny_model, OFTEN_TIED)
    run = engine.train(project, **{"train.steps": 4, f"{ALGORITHM}.refills": 2})
    events = engine.wait(run)
    extended = [e for e in events if isinstance(e, StepExtended)]
    assert extended, "no group was ever tied"
    scored = [e.group for e in events if isinstance(e, GroupScored) and e.group.split == "train"]
    planned = {(e.step, g.group): g.scenario_id for e in extended for g in e.groups}
    assert planned.items() <= {(g.step, g.group): g.scenario_id for g in scored}.items()
    for step in {e.step for e in extended}:
        groups = [g for g in scored if g.step == step]
        assert sum(g.signal for g in groups) <= 2
        assert len({g.scenario_id for g in groups}) == min(4, len(groups))
    straight, rows = files(run, 4), engine.call(lambda c: c.run(run.id)).trajectories
    forget_after(run, 2)
    engine.call(lambda c: c.command(run.id, Command(action="resume")))
    again = [e for e in engine.wait(run) if isinstance(e, StepExtended)]
    assert files(run, 4) == straight
    assert engine.call(lambda c: c.run(run.id)).trajectories == rows
    assert again == extended


def test_ties_are_no_loss_for_a_value_head(engine: Engine, project: Path) -> None:
    agent = project / "agent.py"
    agent.write_text(agent.read_text().replace("sum(c.isalpha() for c in said) / 8", "0.3"))
    run = engine.train(
        project, **{"train.steps": 2, f"{ALGORITHM}.preset": "ppo", f"{ALGORITHM}.updates": 1}
    )
    steps = [e for e in engine.wait(run) if isinstance(e, StepFinished)]
    assert not any(step.skipped for step in steps)
    assert steps[0].metrics["groups/no_signal"] == 0
    assert 0 < steps[0].metrics["value/loss"] <= 0.3**2 / 2


def test_a_long_answer_costs_in_training_alone(engine: Engine, project: Path) -> None:
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
