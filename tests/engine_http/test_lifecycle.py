"""Life cycle of a run over HTTP: train, pause, stop, resume, extend."""

import json
import shutil
import time
from pathlib import Path
from typing import Any, Literal

import psutil
import pytest

from engine.client import EngineClient
from engine.protocol.events.run import (
    AlertsChanged,
    Event,
    GroupScored,
    PauseRequested,
    RunContinued,
    RunFailed,
    RunFinished,
    RunStopped,
    StepFinished,
    StepStarted,
    TrajectoryRecorded,
    UnknownEvent,
    ValidationFinished,
    WorkerRestarted,
)
from engine.protocol.problems import Refused
from engine.protocol.records.metrics import METRICS, metric
from engine.protocol.records.runs import RunSummary
from engine.protocol.requests.runs import (
    Command,
    ExportTrajectories,
    StartRun,
    TrajectoryLine,
    TrajectoryQuery,
)
from engine.reward.reward_hacking import NAMES
from engine.server.services.summaries import summarise
from engine.storage.checkpoints.checkpoint import verify
from tests.engine_http.conftest import AGENT, Engine, delete_checkpoints_after, make_project, until
from tests.support.processes import is_alive


@pytest.fixture(scope="module")
def finished_run(
    shared_engine: Engine, home: Path, tiny_model: Path
) -> tuple[RunSummary, list[Event | UnknownEvent]]:
    """Run of three steps and its events; only the last test of the module changes it."""
    project = make_project(home / "finished", tiny_model)
    run = shared_engine.train(project, **{"alerts.when": "trajectories > 7 for 2 steps"})
    return run, shared_engine.wait(run)


def test_run_events_are_complete_and_in_order(
    finished_run: tuple[RunSummary, list[Event | UnknownEvent]],
) -> None:
    run, events = finished_run
    assert [e.seq for e in events] == list(range(1, len(events) + 1))
    steps = [e for e in events if isinstance(e, StepFinished)]
    assert [e.step for e in steps] == [1, 2, 3]
    assert [e.step for e in events if isinstance(e, ValidationFinished)] == [0, 2, 3]
    trajectories = [e.trajectory for e in events if isinstance(e, TrajectoryRecorded)]
    assert len([t for t in trajectories if t.split == "train"]) == 3 * 2 * 4
    assert len({t.id for t in trajectories}) == len(trajectories)
    assert len([e for e in events if isinstance(e, GroupScored)]) == 3 * 2 + 3 * 2
    alerts = [
        (e.step, [one.words for one in e.alerts]) for e in events if isinstance(e, AlertsChanged)
    ]
    assert alerts == [(2, ["trajectories: 8 in steps 1 to 2, above 7."])]
    assert isinstance(events[-1], RunFinished)
    assert verify(Path(run.path) / events[-1].checkpoint)
    for name in ("reward/mean", "loss", "grad_norm", "entropy", "ratio/mean", "time_s/step"):
        assert name in steps[0].metrics
    assert steps[0].metrics["logprob_gap/max"] <= 1e-4
    keys = {key for step in steps for key in step.metrics}
    assert [key for key in keys if metric(key) is None] == []
    metrics_of_other_runs = {
        "kl",
        "judge/rules",
        "judge/local",
        "judge/canaries",
        "publish_moved",
        "staleness",
        "time_s/switch",
        "epoch",
        "tokens/trained",
        "validation/loss",
        "validation/win_rate",
        "tokens/reasoning_mean",
        "malformed_calls",
        "capped_calls",
        "reasoning_closed",
    }
    assert {m.key for m in METRICS if "*" not in m.key} - keys == metrics_of_other_runs
    adapter = json.loads(
        (Path(run.path) / events[-1].checkpoint / "adapter" / "adapter_config.json").read_text()
    )
    assert adapter["r"] == 4


def test_recorded_trajectories_and_groups_are_readable(
    engine: Engine, finished_run: tuple[RunSummary, list[Event | UnknownEvent]]
) -> None:
    run, _ = finished_run
    page = engine.call(lambda c: c.trajectories(run.id, TrajectoryQuery(split="train", step=1)))
    assert page.total == 8
    whole = engine.call(lambda c: c.trajectory(run.id, page.items[0].id))
    assert [m.role for m in whole.messages] == ["user", "assistant"]
    (branch,) = whole.branches
    assert len(branch.pieces) == len(branch.tokens)
    assert len(branch.logprobs) == whole.sampled_tokens
    assert whole.metrics.keys() == {"length", *NAMES}
    siblings = engine.call(lambda c: c.siblings(run.id, "train", 1, 0))
    assert len(siblings.trajectories) == 4
    assert siblings.group.signal == any(t.advantage for t in siblings.trajectories)
    query = TrajectoryQuery(split="train", step=1, filter="say")
    groups = engine.call(lambda c: c.groups(run.id, query))
    assert groups.total == 2
    assert all(group.title.startswith("Say") for group in groups.items)
    names = engine.call(lambda c: c.filter_names(run.id))
    assert "length" in names.metrics
    some = ExportTrajectories(ids=[one.id for one in page.items[:2]])

    async def export(client: EngineClient) -> list[TrajectoryLine]:
        return [line async for line in client.export_trajectories(run.id, some)]

    assert [line.messages for line in engine.call(export)][::-1] == [
        engine.call(lambda c, name=one.id: c.trajectory(run.id, name)).messages
        for one in page.items[:2]
    ]


def test_pause_continue_stop_resume(engine: Engine, project: Path) -> None:
    run = engine.train(project, **{"train.steps": 6})
    pausing = engine.call(lambda c: c.command(run.id, Command(action="pause")))
    assert pausing.state in ("pausing", "paused")
    paused = engine.wait_for(run, "run.paused")
    summary = engine.call(lambda c: c.run(run.id))
    assert summary.state == "paused"
    assert summary.trained_s > 0
    engine.call(lambda c: c.command(run.id, Command(action="pause")))
    engine.call(lambda c: c.command(run.id, Command(action="continue")))
    engine.wait_for(run, "run.continued")
    engine.call(lambda c: c.command(run.id, Command(action="stop_after_step")))
    events = engine.wait(run)
    assert isinstance(events[-1], RunStopped)
    stopped = events[-1].step
    assert paused.step <= stopped < 6  # type: ignore[union-attr]
    closing = engine.child_processes("policy")
    resumed = engine.call(lambda c: c.command(run.id, Command(action="resume")))
    assert not any(is_alive(process) for process in closing)
    assert resumed.state in ("running", "starting")
    events = engine.wait(run)
    assert isinstance(events[-1], RunFinished)
    assert [e.step for e in events if isinstance(e, StepFinished)] == [1, 2, 3, 4, 5, 6]
    requests = [e.seq for e in events if isinstance(e, PauseRequested)]
    assert len(requests) == 1, "asking twice stores one request"
    assert (requests[0] or 0) < (paused.seq or 0)  # type: ignore[union-attr]
    finished = engine.call(lambda c: c.run(run.id))
    assert finished.idle_s > 0
    assert finished.trained_s + finished.idle_s <= finished.changed_at - finished.started_at + 0.1


def test_withdrawn_pause_lets_the_run_go_on(engine: Engine, project: Path) -> None:
    run = engine.train(project, **{"train.steps": 4})
    engine.wait_for(run, "step.started")
    pausing = engine.call(lambda c: c.command(run.id, Command(action="pause")))
    going_on = engine.call(lambda c: c.command(run.id, Command(action="continue")))
    events = engine.wait(run)
    assert isinstance(events[-1], RunFinished)
    if pausing.state == "pausing":  # not so fast that it paused already
        assert going_on.state == "running"
        assert any(isinstance(e, RunContinued) for e in events)


def test_same_key_starts_one_run_and_stop_now_keeps_data(engine: Engine, project: Path) -> None:
    request = StartRun(project=str(project), key="once", overrides={"train.steps": 50})
    run = engine.call(lambda c: c.start_run(request))
    again = engine.call(lambda c: c.start_run(request))
    assert run.id == again.id
    engine.wait_for(run, "step.finished")
    summary = engine.call(lambda c: c.command(run.id, Command(action="stop_now")))
    assert summary.state == "stopped"
    assert summary.trajectories >= 8
    assert engine.child_processes("engine.policy") == []


def test_groups_without_signal_change_no_weight(
    engine: Engine, project: Path, tiny_model: Path
) -> None:
    agent = (project / "agent.py").read_text()
    same = agent.replace("sum(c.isalpha() for c in reply) / 8", "0.3")
    (project / "agent.py").write_text(same)
    run = engine.train(project, **{"train.steps": 2, "train.checkpoint_every": 1})
    events = engine.wait(run)
    steps = [e for e in events if isinstance(e, StepFinished)]
    assert all(e.skipped and e.metrics["groups/no_signal"] == 1 for e in steps)
    first, second = (
        Path(run.path) / "checkpoints" / f"step-00000{n}" / "adapter" / "adapter_model.safetensors"
        for n in (1, 2)
    )
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.parametrize(("kind", "steps"), [("train", 9), ("train", 1), ("baseline", 9)])
def test_run_without_any_score_fails_with_cause(
    engine: Engine, project: Path, kind: Literal["train", "baseline"], steps: int
) -> None:
    (project / "agent.py").write_text(
        "def rollout(scenario, model):\n    raise KeyError('dates')\n"
    )
    request = StartRun(project=str(project), kind=kind, overrides={"train.steps": steps})
    run = engine.call(lambda c: c.start_run(request))
    events = engine.wait(run)
    last = events[-1]
    assert isinstance(last, RunFailed)
    assert last.problem.code == "run.nothing_scored"
    assert "KeyError: 'dates'" in last.problem.message
    assert last.problem.where == "agent.py, line 2"
    done = [e for e in events if isinstance(e, StepFinished)]
    assert len(done) == (0 if kind == "baseline" else min(3, steps))
    assert all(e.reason == "No rollout could be scored, so there is no gradient." for e in done)


def test_baseline_measures_without_training(engine: Engine, project: Path) -> None:
    request = StartRun(project=str(project), kind="baseline")
    run = engine.call(lambda c: c.start_run(request))
    events = engine.wait(run)
    assert not [e for e in events if isinstance(e, StepFinished)]
    summary = engine.call(lambda c: c.run(run.id))
    assert summary.validation is not None
    assert summary.validation.count == 4


def test_engine_shutdown_leaves_no_process(own_engine: Engine, project: Path) -> None:
    engine = own_engine
    run = engine.train(project, **{"train.steps": 50})
    engine.wait_for(run, "step.started")
    children = psutil.Process(engine.process.pid).children(recursive=True)
    assert len(children) >= 2
    engine.call(lambda c: c.shut_down())
    engine.process.wait(timeout=30)
    until(lambda: not any(is_alive(p) for p in children))
    assert summarise(Path(run.path)).state == "stopped"


def test_resume_from_checkpoint_is_identical_and_run_can_be_extended(
    engine: Engine, finished_run: tuple[RunSummary, list[Event | UnknownEvent]]
) -> None:
    """Delete everything after the checkpoint of step 2 except the trajectories, and resume.

    Then extend the finished run.
    """
    run, _ = finished_run
    last = Path("checkpoints/step-000003/adapter/adapter_model.safetensors")
    straight = (Path(run.path) / last).read_bytes()
    rows = engine.call(lambda c: c.run(run.id)).trajectories
    delete_checkpoints_after(run, 2)
    engine.call(lambda c: c.command(run.id, Command(action="resume")))
    events = engine.wait(run)
    assert (Path(run.path) / last).read_bytes() == straight
    assert [e.step for e in events if isinstance(e, StepStarted)] == [1, 2, 3]
    assert engine.call(lambda c: c.run(run.id)).trajectories == rows
    engine.call(lambda c: c.command(run.id, Command(action="resume", steps=4)))
    events = engine.wait(run)
    assert [e.step for e in events if isinstance(e, StepFinished)] == [1, 2, 3, 4], events[-1]
    assert engine.call(lambda c: c.run(run.id)).steps == 4


EVEN_AGENT = AGENT.replace('"reward": sum(c.isalpha() for c in reply) / 8', '"reward": 0.5')
"""Every validation has the same result."""


def test_run_whose_validations_do_not_improve_ends_early_and_may_be_extended(
    engine: Engine, workspace: Path, tiny_model: Path
) -> None:
    assert EVEN_AGENT != AGENT
    project = make_project(workspace / "even", tiny_model, EVEN_AGENT)
    settings = {"train.patience": 2, "train.validate_every": 1, "train.checkpoint_every": 5}
    run = engine.train(project, **{"train.steps": 9, **settings})
    events = engine.wait(run)
    assert isinstance(events[-1], RunFinished)
    assert events[-1].step == 2
    assert [one.step for one in events if isinstance(one, ValidationFinished)] == [0, 1, 2]
    assert [one.checkpoint.step for one in engine.call(lambda c: c.checkpoints(run.id))] == [2]
    engine.call(lambda c: c.command(run.id, Command(action="extend", steps=9)))
    assert [e.step for e in engine.wait(run) if isinstance(e, RunFinished)] == [2, 3]


@pytest.mark.parametrize(
    "changed",
    [
        {"hidden_size": 96, "head_dim": 48},
        {"num_attention_heads": 3},
        {"rope_parameters": {"rope_type": "no_such_type"}},
        {"hidden_act": "no_such_activation"},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_broken_model_fails_run_with_one_message_without_restarts(
    engine: Engine, workspace: Path, tiny_model: Path, changed: dict[str, Any]
) -> None:
    model = Path(shutil.copytree(tiny_model, workspace / "broken"))
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | changed))
    started_at = time.monotonic()
    run = engine.train(make_project(workspace / "letters", model))
    events = engine.wait(run)
    last = events[-1]
    assert isinstance(last, RunFailed)
    assert last.problem.code.startswith("model.")
    assert not [e for e in events if isinstance(e, WorkerRestarted)]
    print(f"{next(iter(changed))}: failed after {time.monotonic() - started_at:.1f} s")


def test_unknown_architecture_is_refused_before_a_run(
    engine: Engine, workspace: Path, tiny_model: Path
) -> None:
    model = Path(shutil.copytree(tiny_model, workspace / "broken"))
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"model_type": "no_such_model"}))
    project = make_project(workspace / "letters", model)
    with pytest.raises(Refused, match="no_such_model"):
        engine.train(project)
    assert not (project / "runs").exists() or not list((project / "runs").iterdir())
