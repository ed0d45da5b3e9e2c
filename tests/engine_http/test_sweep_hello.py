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


@pytest.mark.long
@pytest.mark.timeout(HOUR_S)
def test_six_settings_and_two_seeds_survive_kill_and_pruning_keeps_the_best(
    real_cache: None, workspace: Path
) -> None:
    project = workspace / "hello"
    new = [sys.executable, "-m", "engine", "new", str(project), "--sample", "hello"]
    subprocess.run(new, check=True, cwd=ROOT, capture_output=True)
    trust_project(project)
    settings = {**SETTINGS, "model.name": str(find_model("smollm2-135m-instruct"))}
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
    assert table(again) == table(pruned)
    assert saved >= 0.3
    assert (pruned.best, pruned.result) == (whole.best, whole.result)
