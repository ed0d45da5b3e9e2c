"""A sweep of the sample `hello` with the starter model: kill -9, and what pruning saves."""

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from engine.cli.sweep_text import table_text
from engine.models.registry import find_model
from engine.protocol.records.sweeps import SweepView
from engine.trust.projects import trust_project
from tests.engine_http.conftest import ROOT, start_engine, stop_engine
from tests.engine_http.test_sweeps import follow, start, table

SETTINGS: dict[str, Any] = {
    "train.steps": 8,
    "train.validate_every": 2,
    "train.validation_attempts": 4,
    "train.checkpoint_every": 2,
    "train.groups": 8,
    "train.group_size": 8,
    "sweep.method": "grid",
    "sweep.seeds": 2,
    "sweep.first_validation": 2,
    "sweep.parameters": {"train.lr": [5e-6, 2e-5, 5e-5, 1e-4, 2e-4, 4e-4]},
}
HOUR_S = 3600
STARTER = "smollm2-135m-instruct"


@pytest.mark.long
@pytest.mark.timeout(HOUR_S)
def test_six_settings_and_two_seeds_survive_kill_and_pruning_keeps_the_best(
    real_cache: None, workspace: Path
) -> None:
    project = make_hello(workspace)
    settings = {**SETTINGS, "model.name": str(find_model(STARTER))}
    engine = start_engine(workspace)
    try:
        views: dict[str, SweepView] = {}
        for name, prune in (("pruned", "halving"), ("not pruned", "none")):
            started_at = time.monotonic()
            sweep = start(engine, project, **settings, **{"sweep.prune": prune})
            views[name] = view = follow(engine, sweep, timeout_s=HOUR_S)
            print(f"\n{name}: {view.steps_done} steps, {time.monotonic() - started_at:.0f} s")
            print(table_text(view), flush=True)
        killed = start(engine, project, **settings, **{"sweep.prune": "halving"})
        for _ in range(2):
            done = engine.call(lambda client: client.sweep(killed.id)).steps_done
            follow(engine, killed, lambda view: view.steps_done > done + 10, timeout_s=HOUR_S)  # noqa: B023
            engine.kill()
            engine = start_engine(workspace)
        again = follow(engine, killed, timeout_s=HOUR_S)
    finally:
        stop_engine(engine)
    pruned, whole = views["pruned"], views["not pruned"]
    print(f"\nkilled twice:\n{table_text(again)}")
    saved = pruned.steps_saved / pruned.steps_planned
    print(f"\npruning saved {pruned.steps_saved} of {pruned.steps_planned} steps ({saved:.0%}); ")
    for name, view in views.items():
        assert view.best is not None
        assert view.result is not None
        values = view.trials[view.best - 1].values
        print(f"best {name}: trial {view.best}, {values}, {view.result.mean:.3f}")
    assert outcomes(again) == outcomes(pruned)
    for one, other in zip(again.trials, pruned.trials, strict=True):
        assert one.result is not None
        assert other.result is not None
        assert max(one.result.low, other.result.low) <= min(one.result.high, other.result.high)
    assert saved >= 0.3
    found = pruned.trials[pruned.best - 1], whole.trials[whole.best - 1]
    assert found[0].values == found[1].values
    assert found[0].result == found[1].result or max(
        one.result.low for one in found if one.result
    ) <= min(one.result.high for one in found if one.result)


@pytest.mark.long
@pytest.mark.timeout(HOUR_S)
def test_killed_sweep_ends_with_exactly_the_same_table_in_float32(
    real_cache: None, workspace: Path
) -> None:
    """In bfloat16 two uninterrupted runs with one seed differ already, since rounding depends on
    which rollouts share a batch; in float32 the sampled tokens are the same."""
    project = make_hello(workspace)
    small = {
        "model.dtype": "float32",
        "train.steps": 3,
        "train.validate_every": 1,
        "train.validation_attempts": 1,
        "train.groups": 2,
        "train.group_size": 4,
        "sweep.first_validation": 1,
        "sweep.prune": "halving",
    }
    settings = {**SETTINGS, "model.name": str(find_model(STARTER)), **small}
    engine = start_engine(workspace)
    try:
        whole = follow(engine, start(engine, project, **settings), timeout_s=HOUR_S)
        print(f"\nuninterrupted:\n{table_text(whole)}", flush=True)
        killed = start(engine, project, **settings)
        for _ in range(2):
            done = engine.call(lambda client: client.sweep(killed.id)).steps_done
            follow(engine, killed, lambda view: view.steps_done > done + 3, timeout_s=HOUR_S)  # noqa: B023
            engine.kill()
            engine = start_engine(workspace)
        again = follow(engine, killed, timeout_s=HOUR_S)
    finally:
        stop_engine(engine)
    print(f"\nkilled twice:\n{table_text(again)}", flush=True)
    assert table(again) == table(whole)


def make_hello(workspace: Path) -> Path:
    project = workspace / "hello"
    new = [sys.executable, "-m", "engine", "new", str(project), "--sample", "hello"]
    subprocess.run(new, check=True, cwd=ROOT, capture_output=True)
    trust_project(project)
    return project


def outcomes(view: SweepView) -> list[tuple[Any, ...]]:
    """Trials with states and steps of their runs, without results."""
    return [
        (trial.values, trial.state, [(run.seed, run.state, run.step) for run in trial.runs])
        for trial in view.trials
    ]
