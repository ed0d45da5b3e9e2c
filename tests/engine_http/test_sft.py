"""SFT runs over a real engine: the loss falls, invalid lines block the start, a resumed run is
bit-identical, and RL continues from the adapter."""

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from engine.client import EngineClient
from engine.protocol.events.run import (
    Event,
    RunFailed,
    RunFinished,
    RunStopped,
    StepFinished,
    UnknownEvent,
)
from engine.protocol.events.sft import LossMeasured
from engine.protocol.problems import AtelierError
from engine.protocol.records.runs import RunSummary
from engine.protocol.requests.runs import Command, StartRun
from engine.storage.checkpoints.checkpoint import folder_of
from engine.storage.checkpoints.references import find_checkpoint
from engine.storage.run_folder.run import read_spec
from tests.engine_http.conftest import Engine, start_engine, stop_engine, until
from tests.support.engine_starter import run_command

FAST = {"sft.lr": 1e-2, "sft.epochs": 3, "sft.batch_size": 4, "sft.validate_every": 4}


def write_demonstrations(
    project: Path, count: int = 24, name: str = "demonstrations.jsonl"
) -> Path:
    """Write demonstrations whose reply is always the same word, so that the loss can fall."""
    lines = [
        {
            "messages": [
                {"role": "user", "content": f"Say {n}"},
                {"role": "assistant", "content": "seven"},
            ]
        }
        for n in range(count)
    ]
    file = project / name
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def start_sft(engine: Engine, project: Path, origin: str = "", **overrides: Any) -> RunSummary:
    request = StartRun(
        project=str(project), kind="sft", origin=origin, overrides={**FAST, **overrides}
    )
    return engine.call(lambda client: client.start_run(request))


def losses(events: list[Event | UnknownEvent]) -> dict[int, float]:
    return {e.step: e.loss for e in events if isinstance(e, LossMeasured)}


def adapter_bytes(run: RunSummary, step: int) -> bytes:
    file = folder_of(Path(run.path), step) / "adapter" / "adapter_model.safetensors"
    return file.read_bytes()


def test_held_out_loss_falls(engine: Engine, project: Path) -> None:
    write_demonstrations(project)
    run = start_sft(engine, project)
    events = engine.wait(run)
    last = events[-1]
    assert isinstance(last, RunFinished), last
    spec = read_spec(Path(run.path))
    plan = spec.supervised
    assert plan is not None
    assert (plan.train.examples, plan.held_out.examples, plan.updates) == (22, 2, 18)
    assert run.steps == 18
    measured = losses(events)
    assert list(measured) == [0, 4, 8, 12, 16, 18]
    assert measured[18] < measured[0] - 0.5, "nats per token, on held-out prompts"
    assert last.loss_first == measured[0]
    assert (last.loss_best, last.loss_step) == min((loss, step) for step, loss in measured.items())
    steps = [e for e in events if isinstance(e, StepFinished)]
    assert [e.step for e in steps] == list(range(1, 19))
    keys = {"loss", "grad_norm", "lr", "epoch", "tokens/trained", "tokens_per_s/train", "entropy"}
    assert keys <= steps[0].metrics.keys()
    assert steps[-1].metrics["epoch"] == 3
    assert steps[0].metrics["lr"] == pytest.approx(1e-2 / 2)
    assert steps[1].metrics["lr"] == pytest.approx(1e-2)
    tokens = next(e.tokens for e in events if isinstance(e, LossMeasured))
    assert tokens == plan.held_out.trained
    summary = engine.call(lambda c: c.run(run.id))
    assert summary.losses == [measured[step] for step in measured]
    assert not summary.rewards
    stored = engine.call(lambda c: c.checkpoints(run.id))
    best = min(measured, key=lambda step: measured[step])
    assert "best" in next(one.kept_by for one in stored if one.checkpoint.step == best)


def test_rl_continues_from_sft_adapter_and_vice_versa(engine: Engine, project: Path) -> None:
    write_demonstrations(project, 8)
    sft = start_sft(engine, project, **{"sft.epochs": 1})
    assert isinstance(engine.wait(sft)[-1], RunFinished)
    origin = f"{sft.name}@best"
    request = StartRun(project=str(project), origin=origin, overrides={"train.steps": 1})
    rl = engine.call(lambda client: client.start_run(request))
    events = engine.wait(rl)
    assert isinstance(events[-1], RunFinished), events[-1]
    parent = read_spec(Path(rl.path)).parent
    assert parent is not None
    assert (parent.run_id, parent.weights_only) == (sft.id, True)
    assert adapter_bytes(rl, 0) == adapter_bytes(sft, parent.step)
    assert [e.step for e in events if isinstance(e, StepFinished)] == [1]
    again = start_sft(engine, project, f"{rl.name}@1", **{"sft.epochs": 1})
    assert isinstance(engine.wait(again)[-1], RunFinished)
    assert adapter_bytes(again, 0) == adapter_bytes(rl, 1)


def test_invalid_lines_block_start_unless_skipped(engine: Engine, project: Path) -> None:
    file = write_demonstrations(project, 6)
    with file.open("a") as more:
        more.write('{"messages": []}\n\nnonsense\n{"text": "' + "a" * 500 + '"}\n')
    with pytest.raises(AtelierError) as refused:
        start_sft(engine, project)
    problem = refused.value.problem
    assert problem.code == "demonstrations.bad_lines"
    assert problem.where == "demonstrations.jsonl, line 7"
    for words in (
        "3 of the 9 lines",
        "line 7: ",
        "line 9: The line is not valid JSON",
        "model.max_context is 200",
    ):
        assert words in problem.message
    assert not list(project.glob("runs/*")), "no run folder is left"
    run = start_sft(engine, project, **{"sft.skip_bad_lines": True, "sft.epochs": 1})
    events = engine.wait(run)
    assert isinstance(events[-1], RunFinished)
    plan = read_spec(Path(run.path)).supervised
    assert plan is not None
    assert (plan.skipped, plan.train.examples + plan.held_out.examples) == (3, 6)
    assert any("3 invalid lines" in getattr(event, "text", "") for event in events)


def test_missing_or_empty_demonstrations_are_rejected(engine: Engine, project: Path) -> None:
    words = r"The project has no demonstration file demonstrations\.jsonl"
    with pytest.raises(AtelierError, match=words):
        start_sft(engine, project)
    (project / "demonstrations.jsonl").write_text("\n")
    with pytest.raises(AtelierError, match="no demonstration to train on"):
        start_sft(engine, project)


def test_patience_stops_run_early(engine: Engine, project: Path) -> None:
    write_demonstrations(project, 12)
    run = start_sft(
        engine,
        project,
        **{"sft.lr": 1e-9, "sft.patience": 2, "sft.validate_every": 1, "sft.epochs": 9},
    )
    events = engine.wait(run)
    assert isinstance(events[-1], RunFinished)
    measured = losses(events)
    best = min(measured, key=lambda step: (measured[step], step))
    assert events[-1].step == best + 2 < run.steps


def test_best_checkpoint_is_step_0_if_loss_only_rises(engine: Engine, project: Path) -> None:
    """An untrained model with tied embeddings repeats its input.

    Training on one word reduces that.
    """
    write_demonstrations(project, 12)
    (project / "held.jsonl").write_text(json.dumps({"text": "c" * 60}) + "\n")
    run = start_sft(engine, project, **{"sft.validation": "held.jsonl"})
    events = engine.wait(run)
    assert isinstance(events[-1], RunFinished), events[-1]
    measured = losses(events)
    assert min(measured, key=lambda step: measured[step]) == 0
    stored = {one.checkpoint.step: one for one in engine.call(lambda c: c.checkpoints(run.id))}
    assert stored[0].state == "whole"
    assert "best" in stored[0].kept_by
    assert find_checkpoint(project, f"{run.name}@best").step == 0


def test_without_held_out_lines_step_0_is_not_saved(engine: Engine, project: Path) -> None:
    write_demonstrations(project, 6)
    run = start_sft(engine, project, **{"sft.held_out": 0.0, "sft.epochs": 1})
    assert isinstance(engine.wait(run)[-1], RunFinished)
    assert [one.checkpoint.step for one in engine.call(lambda c: c.checkpoints(run.id))] == [2]


def test_sft_check_lists_every_invalid_line(project: Path) -> None:
    with write_demonstrations(project, 2).open("a") as more:
        more.write("nonsense\n" * 120)
    done = run_command("sft", str(project), "--check")
    assert done.returncode == 1
    named = [line for line in done.stdout.splitlines() if "The line is not valid JSON" in line]
    assert [line.split(":")[0] for line in named] == [f"  line {n}" for n in range(3, 123)]


def test_sft_command(engine: Engine, project: Path) -> None:
    write_demonstrations(project, 12, "mine.jsonl")
    command = ["sft", str(project), "--data", "mine.jsonl"]
    for key, value in FAST.items():
        command += ["--set", f"{key}={value}"]
    command += ["--workspace", str(engine.workspace)]
    checked = run_command(*command, "--check")
    assert checked.returncode == 0, checked.stderr
    assert "mine.jsonl (train): 12 demonstrations" in checked.stdout
    done = run_command(*command)
    assert done.returncode == 0, done.stderr
    assert "training: 11 demonstrations" in done.stdout
    assert "Finished 9 updates" in done.stdout
    assert "held-out loss" in done.stdout
    assert f"train {project} --from " in done.stdout
    with (project / "mine.jsonl").open("a") as more:
        more.write("nonsense\n")
    refused = run_command(*command)
    assert refused.returncode == 1
    assert "line 13: The line is not valid JSON" in refused.stderr


def test_resume_after_kill_is_bit_identical(
    own_engine: Engine, project: Path, workspace: Path
) -> None:
    write_demonstrations(project)
    overrides = {"sft.validate_every": 5, "sft.epochs": 16}
    whole = start_sft(own_engine, project, **overrides)
    assert isinstance(own_engine.wait(whole)[-1], RunFinished)
    run = start_sft(own_engine, project, **overrides)
    kill_at(own_engine, run, step=5)
    (project / "demonstrations.jsonl").unlink()  # the run has a copy of its demonstrations
    engine = start_engine(workspace)
    try:
        until(lambda: not engine.child_processes("engine.policy.torch"))
        cut = engine.call(lambda c: c.run(run.id))
        assert cut.state == "stopped"
        assert 0 < cut.step < cut.steps
        engine.call(lambda c: c.command(run.id, Command(action="resume")))
        events = engine.wait(run)
        assert isinstance(events[-1], RunFinished), events[-1]
        assert adapter_bytes(run, run.steps) == adapter_bytes(whole, whole.steps)
        assert [e.step for e in events if isinstance(e, StepFinished)] == list(range(1, 97))
        assert losses(events) == losses(engine.wait(whole))
    finally:
        stop_engine(engine)


def kill_at(engine: Engine, run: RunSummary, step: int) -> None:
    """Kill the engine as soon as the loss after this update is reported; many updates are left."""

    async def follow(client: EngineClient) -> None:
        async with asyncio.timeout(60):
            async for event in client.events(run.id):
                if isinstance(event, LossMeasured) and event.step == step:
                    os.kill(engine.process.pid, signal.SIGKILL)
                    return

    engine.call(follow)
    engine.process.wait()


def test_stop_and_resume(engine: Engine, project: Path) -> None:
    write_demonstrations(project)
    run = start_sft(engine, project, **{"sft.epochs": 30})
    until(lambda: engine.call(lambda c: c.run(run.id)).step >= 1)
    engine.call(lambda c: c.command(run.id, Command(action="stop_after_step")))
    stopped = engine.wait(run)[-1]
    assert isinstance(stopped, RunStopped)
    with pytest.raises(AtelierError, match="is set by its epochs"):
        engine.call(lambda c: c.command(run.id, Command(action="extend", steps=500)))
    engine.call(lambda c: c.command(run.id, Command(action="resume")))
    until(lambda: engine.call(lambda c: c.run(run.id)).step > stopped.step)
    engine.call(lambda c: c.command(run.id, Command(action="stop_now")))
    assert not isinstance(engine.wait(run)[-1], RunFailed)
