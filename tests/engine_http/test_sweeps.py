"""Sweeps over HTTP: plan, runs one after another, pruning, pause, failures, kill -9."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from engine.client import EngineClient
from engine.launcher.local import find
from engine.protocol.problems import Refused
from engine.protocol.records.runs import ACTIVE_STATES
from engine.protocol.records.sweeps import SweepTrial, SweepView
from engine.protocol.requests.runs import Command, StartRun
from engine.protocol.requests.sweeps import ActOnSweep, StartSweep
from engine.storage.run_folder.run import read_spec
from engine.training.sweep.record import read_record
from tests.engine_http.conftest import ROOT, Engine, make_project, start_engine, stop_engine
from tests.support.engine_starter import run_command

SMALL = {"train.steps": 3, "train.validate_every": 1, "train.groups": 1, "train.group_size": 2}
LRS = [1e-3, 1e-2, 5e-2]


def request_for(project: Path, **overrides: Any) -> StartSweep:
    sweep = {"sweep.method": "grid", "sweep.prune": "none"}
    parameters = {"sweep.parameters": {"train.lr": LRS}}
    return StartSweep(project=str(project), overrides={**SMALL, **sweep, **parameters, **overrides})


def start(engine: Engine, project: Path, **overrides: Any) -> SweepView:
    return engine.call(lambda client: client.start_sweep(request_for(project, **overrides)))


def act(engine: Engine, sweep: SweepView, action: str, **values: Any) -> SweepView:
    request = ActOnSweep(action=action, **values)  # type: ignore[arg-type]
    return engine.call(lambda client: client.act_on_sweep(sweep.id, request))


def follow(
    engine: Engine, sweep: SweepView, until: Any = None, timeout_s: float = 120
) -> SweepView:
    """Follow a sweep until it is over, or `until(view)`; every revision is larger than the last."""

    async def read(client: EngineClient) -> SweepView:
        last = 0
        async with asyncio.timeout(timeout_s):
            async for view in client.sweep_events(sweep.id):
                assert view.revision > last
                last = view.revision
                is_over = view.state not in ("waiting", "running")
                if until(view) if until else is_over:
                    return view
        raise AssertionError("the stream ended")

    return engine.call(read)


def table(view: SweepView) -> list[tuple[Any, ...]]:
    """Everything of a sweep's table but ids, names and times."""
    return [
        (
            trial.number,
            trial.values,
            trial.state,
            trial.result,
            [(run.seed, run.state, run.step, run.steps, run.curve) for run in trial.runs],
        )
        for trial in view.trials
    ]


def runs_of(trials: list[SweepTrial]) -> list[str]:
    return [run.run_id for trial in trials for run in trial.runs]


def test_grid_runs_every_combination_with_every_seed(engine: Engine, project: Path) -> None:
    request = request_for(project, **{"sweep.seeds": 2, "train.seed": 5})
    plan = engine.call(lambda client: client.plan_sweep(request))
    assert (plan.trials, plan.seeds, plan.steps) == (3, 2, 18)
    assert plan.values == [{"train.lr": lr} for lr in LRS]
    begun = engine.call(lambda client: client.start_sweep(request))
    assert [trial.values for trial in begun.trials] == plan.values
    view = follow(engine, begun)
    assert view.state == "finished"
    assert view.problem is None
    assert [trial.state for trial in view.trials] == ["finished"] * 3
    assert [[run.seed for run in trial.runs] for trial in view.trials] == [[5, 6]] * 3
    assert all(run.step == 3 and len(run.curve) == 3 for t in view.trials for run in t.runs)
    assert (view.steps_done, view.steps_planned, view.steps_saved) == (18, 18, 0)
    results = [trial.result.mean if trial.result else 0 for trial in view.trials]
    assert view.best == results.index(max(results)) + 1
    assert view.result == view.trials[view.best - 1].result
    assert view.seconds > 0
    spec = read_spec(project / "runs" / view.trials[1].runs[1].run_id)
    assert (spec.config.train.lr, spec.config.train.seed) == (1e-2, 6)
    assert spec.sweep is not None
    assert (spec.sweep.sweep, spec.sweep.trial, spec.sweep.seed) == (view.id, 2, 6)
    runs = engine.call(lambda client: client.runs(str(project)))
    assert {run.id for run in runs} == set(runs_of(view.trials))
    assert all(run.sweep and run.sweep.values["train.lr"] in LRS for run in runs)
    (listed,) = engine.call(lambda client: client.sweeps(str(project)))
    assert (listed.id, listed.state, listed.trials_ended) == (view.id, "finished", 3)
    with pytest.raises(Refused, match="has finished"):
        act(engine, view, "resume")


def test_pruned_runs_stop_at_their_validation_with_a_reason(engine: Engine, project: Path) -> None:
    """An agent whose reward is the learning rate cannot exist; the random tiny model differs enough
    that of three trials with factor 2 at least one is pruned at the first validation."""
    sweep = {"sweep.prune": "halving", "sweep.reduction_factor": 2, "sweep.seeds": 2}
    view = follow(engine, start(engine, project, **sweep, **{"train.steps": 4}))
    assert view.prune_at == (1, 2)
    pruned = [trial for trial in view.trials if trial.state == "pruned"]
    assert pruned
    assert view.steps_saved == sum(run.steps - run.step for trial in pruned for run in trial.runs)
    assert view.steps_done + view.steps_saved == view.steps_planned
    for trial in pruned:
        stopped = [run for run in trial.runs if run.state == "pruned" and run.run_id]
        assert [run.step for run in stopped] in ([1], [2])
        summary = engine.call(lambda client, run=stopped[0]: client.run(run.run_id))  # type: ignore[misc]
        assert (summary.state, summary.step) == ("stopped", stopped[0].step)
        log = engine.call(lambda client, run=stopped[0]: reasons(client, run.run_id))  # type: ignore[misc]
        assert log == [f"Pruned by sweep {view.name}: after step {summary.step} the run was not "
                       "among the best 1/2."]  # fmt: skip
        kept = engine.call(lambda client, run=stopped[0]: client.checkpoints(run.run_id))  # type: ignore[misc]
        assert kept[-1].checkpoint.step == summary.step


async def reasons(client: EngineClient, run_id: str) -> list[str]:
    found = []
    last = (await client.run(run_id)).seq
    async for event in client.events(run_id):
        if event.kind == "run.stopped":
            found.append(event.reason)  # type: ignore[union-attr]
        if event.seq == last:
            return found
    raise AssertionError("the stream ended")


def test_tpe_proposes_from_results_and_says_what_matters(engine: Engine, project: Path) -> None:
    space = {"train.lr": {"low": 1e-4, "high": 1e-1, "log": True}, "model.rank": [2, 4]}
    sweep = {"sweep.parameters": space, "sweep.method": "tpe", "sweep.trials": 7}
    view = follow(engine, start(engine, project, **sweep, **{"train.steps": 1}))
    assert [trial.number for trial in view.trials] == list(range(1, 8))
    assert len({tuple(trial.values.values()) for trial in view.trials}) == 7
    assert set(view.importance) <= {"train.lr", "model.rank"}


def test_paused_sweep_resumes_its_run_where_it_stopped(
    engine: Engine, project: Path, workspace: Path, tiny_model: Path
) -> None:
    two = {"sweep.parameters": {"train.lr": LRS[:2]}}
    whole = follow(engine, start(engine, project, **two))
    sweep = start(engine, project, **two)
    follow(engine, sweep, lambda view: view.steps_done >= 1)
    act(engine, sweep, "pause")
    paused = follow(engine, sweep, lambda view: view.state == "paused" and not view.running)
    assert 1 <= paused.steps_done < 6
    assert not engine.call(lambda client: client.info()).living_runs
    begun = runs_of(paused.trials)
    assert act(engine, sweep, "resume").state in ("waiting", "running")
    view = follow(engine, sweep)
    assert table(view) == table(whole)
    assert [one for one in begun if one] == [
        a for a, b in zip(runs_of(view.trials), begun, strict=True) if b
    ]


def test_stop_ends_the_run_at_once_and_can_be_resumed(engine: Engine, project: Path) -> None:
    sweep = start(engine, project, **{"train.steps": 50})
    follow(engine, sweep, lambda view: view.steps_done >= 1)
    assert act(engine, sweep, "stop").state == "stopped"
    stopped = engine.call(lambda client: client.sweep(sweep.id))
    assert stopped.running == ""
    assert act(engine, sweep, "resume").state in ("waiting", "running")
    follow(engine, sweep, lambda view: view.steps_done > stopped.steps_done)
    act(engine, sweep, "stop")


def test_normal_run_goes_between_two_runs_of_a_sweep(engine: Engine, project: Path) -> None:
    sweep = start(engine, project)
    first = follow(engine, sweep, lambda view: view.running)
    request = StartRun(project=str(project), overrides=SMALL)
    with pytest.raises(Refused, match=r"That run belongs to a sweep\. Queue your run"):
        engine.call(lambda client: client.start_run(request))
    queued = engine.call(
        lambda client: client.start_run(request.model_copy(update={"queue": True}))
    )
    view = follow(engine, sweep)
    assert view.state == "finished"
    order = sorted(
        engine.call(lambda client: client.runs(str(project))), key=lambda run: run.changed_at
    )
    names = [run.id for run in order]
    assert names.index(queued.id) == 1
    assert names[0] == first.running


def test_sweep_waits_for_a_normal_run(engine: Engine, project: Path) -> None:
    run = engine.train(project, **{**SMALL, "train.steps": 4})
    sweep = start(engine, project, **{"train.steps": 1})
    assert sweep.state == "waiting"
    second = start(engine, project, **{"train.steps": 1})
    assert second.state == "waiting"
    assert engine.call(lambda client: client.run(run.id)).state in ACTIVE_STATES
    assert follow(engine, sweep).state == "finished"
    assert follow(engine, second).state == "finished"


def test_run_stopped_by_hand_pauses_the_sweep(engine: Engine, project: Path) -> None:
    sweep = start(engine, project, **{"train.steps": 50})
    view = follow(engine, sweep, lambda view: view.steps_done >= 1)
    engine.call(lambda client: client.command(view.running, Command(action="stop_now")))
    paused = follow(engine, sweep)
    assert paused.state == "paused"
    assert paused.problem is not None
    assert paused.problem.message.endswith("was stopped by hand.")


def test_three_failures_stop_the_sweep_and_resume_tries_them_again(
    engine: Engine, project: Path
) -> None:
    agent = (project / "agent.py").read_text()
    (project / "agent.py").write_text("async def rollout(scenario, model):\n    raise ValueError\n")
    space = {"train.lr": [1e-3, 2e-3, 3e-3, 4e-3]}
    sweep = start(engine, project, **{"sweep.parameters": space, "train.steps": 1})
    stopped = follow(engine, sweep)
    assert stopped.state == "stopped"
    assert stopped.problem is not None
    assert stopped.problem.message.startswith("3 trials in a row failed.")
    assert [t.state for t in stopped.trials] == ["failed"] * 3 + ["waiting"]
    assert all(trial.problem for trial in stopped.trials[:3])
    assert stopped.best is None
    (project / "agent.py").write_text(agent)
    act(engine, sweep, "resume")
    assert [t.state for t in follow(engine, sweep).trials] == ["finished"] * 4


def test_budget_stops_the_sweep_and_a_larger_one_continues(engine: Engine, project: Path) -> None:
    sweep = start(engine, project, **{"sweep.budget_usd": 1e-9, "evaluate.usd_per_hour": 3.6})
    stopped = follow(engine, sweep)
    assert stopped.state == "stopped"
    assert stopped.problem is not None
    assert stopped.problem.code == "sweep.budget"
    assert stopped.cost_usd > 0
    assert stopped.steps_done < 9
    act(engine, sweep, "resume", budget_usd=100)
    view = follow(engine, sweep)
    assert view.state == "finished"
    assert view.cost_usd == pytest.approx(view.seconds / 1000, rel=0.01)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"sweep.parameters": {"train.lrr": [1]}}, r"no `lrr` in \[train\]. Did you mean `lr`"),
        ({"sweep.parameters": {"train.groups": [1.5]}}, "valid integer"),
        ({"sweep.parameters": {}}, "no settings to sweep"),
        ({"scenarios.validation": ""}, "no validation scenarios"),
        ({"sweep.parameters": {"train.algorithm.updates": [1, 2]}, "train.groups": 1}, "2 updates"),
        ({"sweep.parameters": {"model.name": ["/nowhere"]}}, "nowhere"),
        ({"sweep.parameters": {"train.seed": [1, 2]}}, "sweep.seeds"),
    ],
)
def test_bad_sweep_is_refused_before_anything_starts(
    engine: Engine, project: Path, overrides: dict[str, Any], message: str
) -> None:
    for call in ("plan_sweep", "start_sweep"):
        request = request_for(project, **overrides)
        with pytest.raises(Refused, match=message):
            engine.call(lambda client: getattr(client, call)(request))  # noqa: B023
    assert not (project / "sweeps").exists()
    assert not (project / "runs").exists()


def test_remote_sweep_and_unknown_sweep_are_refused(engine: Engine, project: Path) -> None:
    request = request_for(project).model_copy(update={"host": "gpu-box"})
    with pytest.raises(Refused, match="cannot be started on a server"):
        engine.call(lambda client: client.start_sweep(request))
    with pytest.raises(Refused, match="There is no sweep"):
        engine.call(lambda client: client.sweep("01ARZ3NDEKTSV4RRFFQ69G5FAV"))


def test_killed_engine_leaves_the_same_table(workspace: Path, tiny_model: Path) -> None:
    """kill -9 in the middle of a run; the next engine resumes the sweep by itself."""
    sweep = {
        "sweep.method": "tpe",
        "sweep.trials": 3,
        "sweep.seeds": 2,
        "sweep.prune": "halving",
        "sweep.reduction_factor": 2,
        "sweep.parameters": {"train.lr": {"low": 1e-4, "high": 1e-1, "log": True}},
        "train.checkpoint_every": 1,
    }
    project = make_project(workspace / "letters", tiny_model)
    engine = start_engine(workspace)
    try:
        whole = follow(engine, start(engine, project, **sweep))
        again = start(engine, project, **sweep)
        for _ in range(2):
            done = engine.call(lambda client: client.sweep(again.id)).steps_done
            follow(engine, again, lambda view: view.steps_done > done)  # noqa: B023
            engine.kill()
            assert read_record(project / "sweeps" / again.id).state in ("running", "waiting")
            engine = start_engine(workspace)
        view = follow(engine, again)
    finally:
        stop_engine(engine)
    assert view.state == "finished", view.problem
    assert table(view) == table(whole)
    begun = [one for one in runs_of(view.trials) if one]
    assert len(begun) == len(set(begun))


# The command line


def command(*arguments: str, workspace: Path) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "ATELIER_WORKSPACE": str(workspace)}
    return run_command(*arguments, environment=environment, timeout_s=200)


OPTIONS = ("--steps", "2", "--set", "train.groups=1", "--set", "train.validate_every=1")


def test_command_prints_plan_runs_and_table(project: Path, workspace: Path) -> None:
    vary = ("--vary", "train.lr=[1e-3,1e-2]", "--method", "grid", "--prune", "none")
    arguments = ("sweep", str(project), *vary, *OPTIONS)
    dry = command(*arguments, "--dry-run", workspace=workspace)
    assert dry.stdout.startswith("Sweep of letters: 2 trials × 1 seed = 2 runs, 4 steps at most\n")
    assert "varies  train.lr: 0.001, 0.01" in dry.stdout
    assert not (project / "sweeps").exists()
    done = command(*arguments, "--seeds", "2", workspace=workspace)
    assert done.returncode == 0, done.stderr
    assert "trial 1 of 2 · train.lr 0.001 · seed 1: finished, " in done.stdout
    assert "trial  lr     result  95 % interval" in done.stdout
    assert "Best: trial " in done.stdout
    assert "8 steps in " in done.stdout
    assert asyncio.run(find(workspace)) is None  # the engine started by sweep ended with it
    listed = json.loads(command("sweeps", str(project), "--json", workspace=workspace).stdout)
    assert (listed["state"], listed["trials_ended"]) == ("finished", 2)
    shown = command("sweeps", str(project), listed["name"], workspace=workspace)
    assert shown.stdout.strip() in done.stdout
    rows = command("sweeps", str(project), workspace=workspace).stdout
    assert listed["name"] in rows
    assert "8/8" in rows
    runs = command("runs", str(project), "--json", workspace=workspace).stdout.splitlines()
    assert {json.loads(line)["sweep"]["sweep"] for line in runs} == {listed["id"]}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "The project has no settings to sweep."),
        (("--vary", "train.lrr=[1]"), "Did you mean `lr`?"),
        (("--vary", "train.lr"), "--vary train.lr has no valid list or range of values."),
        (("--vary", "train.lr=[1e-3]", "--method", "grids"), "invalid choice"),
    ],
)
def test_command_refuses_bad_usage(
    engine: Engine, project: Path, arguments: tuple[str, ...], message: str
) -> None:
    done = command("sweep", str(project), *arguments, workspace=engine.workspace)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_interrupted_command_pauses_and_resumes(engine: Engine, project: Path) -> None:
    arguments = ("sweep", str(project), "--vary", "train.lr=[1e-3,2e-3]", *OPTIONS, "--json")
    process = subprocess.Popen(
        [sys.executable, "-m", "engine", *arguments, "--set", "train.steps=40"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=ROOT,
        env={**os.environ, "ATELIER_WORKSPACE": str(engine.workspace)},
    )
    assert process.stdout is not None
    with process.stdout as lines:
        for line in lines:
            if SweepView.model_validate_json(line).steps_done:
                process.send_signal(signal.SIGINT)
                break
        last = [SweepView.model_validate_json(line) for line in lines][-1]
    assert process.wait(timeout=60) == 3
    assert (last.state, last.running) == ("paused", "")
    resume = ("sweep", str(project), "--resume", last.name, "--budget-hours", "1e-6")
    again = command(*resume, workspace=engine.workspace)
    assert again.returncode == 3
    assert "The time budget of 1e-06 hours is used up." in again.stdout
    assert f"--resume {last.name}" in again.stdout
