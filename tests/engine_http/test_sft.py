"""SFT runs over a real engine: the loss falls, bad lines stop the start, a kill changes no byte,
and RL goes on with the same adapter."""

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


def demonstrate(project: Path, count: int = 24, name: str = "demonstrations.jsonl") -> Path:
    """The answer is always the same word, so that there is something to learn."""
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


def begin(engine: Engine, project: Path, origin: str = "", **overrides: Any) -> RunSummary:
    request = StartRun(
        project=str(project), kind="sft", origin=origin, overrides={**FAST, **overrides}
    )
    return engine.call(lambda client: client.start_run(request))


def losses(events: list[Event | UnknownEvent]) -> dict[int, float]:
    return {e.step: e.loss for e in events if isinstance(e, LossMeasured)}


def adapter(run: RunSummary, step: int) -> bytes:
    file = folder_of(Path(run.path), step) / "adapter" / "adapter_model.safetensors"
    return file.read_bytes()


def test_the_held_out_loss_falls(engine: Engine, project: Path) -> None:
    demonstrate(project)
    run = begin(engine, project)
    events = engine.wait(run)
    last = events[-1]
    assert isinstance(last, RunFinished), last
    spec = read_spec(Path(run.path))
    plan = spec.supervised
    assert plan is not None
    assert (plan.train.examples, plan.held_out.examples, plan.updates) == (22, 2, 18)
    assert run.steps == 18
    found = losses(events)
    assert list(found) == [0, 4, 8, 12, 16, 18]
    assert found[18] < found[0] - 0.5, "nats per token, on questions that no update has seen"
    assert last.loss_first == found[0]
    assert (last.loss_best, last.loss_step) == min((loss, step) for step, loss in found.items())
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
    assert summary.losses == [found[step] for step in found]
    assert not summary.rewards
    kept = engine.call(lambda c: c.checkpoints(run.id))
    best = min(found, key=lambda step: found[step])
    assert "best" in next(one.kept_by for one in kept if one.checkpoint.step == best)


def test_rl_goes_on_with_its_adapter_and_sft_with_that_of_rl(engine: Engine, project: Path) -> None:
    demonstrate(project, 8)
    taught = begin(engine, project, **{"sft.epochs": 1})
    assert isinstance(engine.wait(taught)[-1], RunFinished)
    origin = f"{taught.name}@best"
    request = StartRun(project=str(project), origin=origin, overrides={"train.steps": 1})
    rl = engine.call(lambda client: client.start_run(request))
    events = engine.wait(rl)
    assert isinstance(events[-1], RunFinished), events[-1]
    parent = read_spec(Path(rl.path)).parent
    assert parent is not None
    assert (parent.run_id, parent.weights_only) == (taught.id, True)
    assert adapter(rl, 0) == adapter(taught, parent.step)
    assert [e.step for e in events if isinstance(e, StepFinished)] == [1]
    again = begin(engine, project, f"{rl.name}@1", **{"sft.epochs": 1})
    assert isinstance(engine.wait(again)[-1], RunFinished)
    assert adapter(again, 0) == adapter(rl, 1)


def test_bad_lines_stop_the_start_until_they_may_be_left_out(engine: Engine, project: Path) -> None:
    file = demonstrate(project, 6)
    with file.open("a") as more:
        more.write('{"messages": []}\n\nnonsense\n{"text": "' + "a" * 500 + '"}\n')
    with pytest.raises(AtelierError) as refused:
        begin(engine, project)
    problem = refused.value.problem
    assert problem.code == "demonstrations.bad_lines"
    assert problem.where == "demonstrations.jsonl, line 7"
    for words in (
        "3 of the 9 lines",
        "line 7: ",
        "line 9: It is not valid JSON",
        "model.max_context is 200",
    ):
        assert words in problem.message
    assert not list(project.glob("runs/*")), "nothing is left behind"
    run = begin(engine, project, **{"sft.skip_bad_lines": True, "sft.epochs": 1})
    events = engine.wait(run)
    assert isinstance(events[-1], RunFinished)
    plan = read_spec(Path(run.path)).supervised
    assert plan is not None
    assert (plan.skipped, plan.train.examples + plan.held_out.examples) == (3, 6)
    assert any("3 invalid lines" in getattr(event, "text", "") for event in events)


def test_there_must_be_something_to_learn(engine: Engine, project: Path) -> None:
    with pytest.raises(AtelierError, match=r"There is no demonstrations\.jsonl in the project"):
        begin(engine, project)
    (project / "demonstrations.jsonl").write_text("\n")
    with pytest.raises(AtelierError, match="no demonstration to train on"):
        begin(engine, project)


def test_patience_ends_a_run_early(engine: Engine, project: Path) -> None:
    demonstrate(project, 12)
    run = begin(
        engine,
        project,
        **{"sft.lr": 1e-9, "sft.patience": 2, "sft.validate_every": 1, "sft.epochs": 9},
    )
    events = engine.wait(run)
    assert isinstance(events[-1], RunFinished)
    found = losses(events)
    best = min(found, key=lambda step: (found[step], step))
    assert events[-1].step == best + 2 < run.steps


def test_where_the_loss_only_rises_the_beginning_is_the_best(engine: Engine, project: Path) -> None:
    """An untrained model with tied embeddings repeats what it reads; a word unteaches it that."""
    demonstrate(project, 12)
    (project / "held.jsonl").write_text(json.dumps({"text": "c" * 60}) + "\n")
    run = begin(engine, project, **{"sft.validation": "held.jsonl"})
    events = engine.wait(run)
    assert isinstance(events[-1], RunFinished), events[-1]
    found = losses(events)
    assert min(found, key=lambda step: found[step]) == 0
    kept = {one.checkpoint.step: one for one in engine.call(lambda c: c.checkpoints(run.id))}
    assert kept[0].state == "whole"
    assert "best" in kept[0].kept_by
    assert find_checkpoint(project, f"{run.name}@best").step == 0


def test_without_held_out_lines_nothing_is_kept_before_the_first_update(
    engine: Engine, project: Path
) -> None:
    demonstrate(project, 6)
    run = begin(engine, project, **{"sft.held_out": 0.0, "sft.epochs": 1})
    assert isinstance(engine.wait(run)[-1], RunFinished)
    assert [one.checkpoint.step for one in engine.call(lambda c: c.checkpoints(run.id))] == [2]


def test_a_look_before_the_start_lists_every_bad_line(project: Path) -> None:
    with demonstrate(project, 2).open("a") as more:
        more.write("nonsense\n" * 120)
    done = run_command("sft", str(project), "--check")
    assert done.returncode == 1
    named = [line for line in done.stdout.splitlines() if "It is not valid JSON" in line]
    assert [line.split(":")[0] for line in named] == [f"  line {n}" for n in range(3, 123)]


def test_from_the_terminal(engine: Engine, project: Path) -> None:
    demonstrate(project, 12, "mine.jsonl")
    command = ["sft", str(project), "--data", "mine.jsonl"]
    for key, value in FAST.items():
        command += ["--set", f"{key}={value}"]
    command += ["--workspace", str(engine.workspace)]
    checked = run_command(*command, "--check")
    assert checked.returncode == 0, checked.stderr
    assert "mine.jsonl (train): 12 demonstrations" in checked.stdout
    done = run_command(*command)
    assert done.returncode == 0, done.stderr
    assert "trains on 11 demonstrations" in done.stdout
    assert "Finished 9 updates" in done.stdout
    assert "held-out loss" in done.stdout
    assert f"train {project} --from " in done.stdout
    with (project / "mine.jsonl").open("a") as more:
        more.write("nonsense\n")
    refused = run_command(*command)
    assert refused.returncode == 1
    assert "line 13: It is not valid JSON" in refused.stderr


def test_a_kill_changes_no_byte(own_engine: Engine, project: Path, workspace: Path) -> None:
    demonstrate(project)
    overrides = {"sft.validate_every": 5, "sft.epochs": 16}
    whole = begin(own_engine, project, **overrides)
    assert isinstance(own_engine.wait(whole)[-1], RunFinished)
    run = begin(own_engine, project, **overrides)
    kill_at(own_engine, run, step=5)
    (project / "demonstrations.jsonl").unlink()  # the run keeps what it learns from
    engine = start_engine(workspace)
    try:
        until(lambda: not engine.children("engine.policy.torch"))
        cut = engine.call(lambda c: c.run(run.id))
        assert cut.state == "stopped"
        assert 0 < cut.step < cut.steps
        engine.call(lambda c: c.command(run.id, Command(action="resume")))
        events = engine.wait(run)
        assert isinstance(events[-1], RunFinished), events[-1]
        assert adapter(run, run.steps) == adapter(whole, whole.steps)
        assert [e.step for e in events if isinstance(e, StepFinished)] == list(range(1, 97))
        assert losses(events) == losses(engine.wait(whole))
    finally:
        stop_engine(engine)


def kill_at(engine: Engine, run: RunSummary, step: int) -> None:
    """As soon as the loss after this update is told: many more are to come."""

    async def follow(client: EngineClient) -> None:
        async with asyncio.timeout(60):
            async for event in client.events(run.id):
                if isinstance(event, LossMeasured) and event.step == step:
                    os.kill(engine.process.pid, signal.SIGKILL)
                    return

    engine.call(follow)
    engine.process.wait()


def test_stop_and_resume(engine: Engine, project: Path) -> None:
    demonstrate(project)
    run = begin(engine, project, **{"sft.epochs": 30})
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
