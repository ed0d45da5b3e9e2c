"""A sweep of the sample `hello` with the starter model is killed (`kill -9`) and continued."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from engine.cli.sweep_text import table_text
from engine.models.registry import find_model
from engine.trust.projects import trust_project
from tests.engine_http.conftest import ROOT, start_engine, stop_engine
from tests.engine_http.test_sweeps import follow, start, table

STARTER = "smollm2-135m-instruct"
SETTINGS: dict[str, Any] = {
    "model.dtype": "float32",
    "train.steps": 3,
    "train.validate_every": 1,
    "train.validation_attempts": 1,
    "train.checkpoint_every": 2,
    "train.groups": 2,
    "train.group_size": 4,
    "sweep.method": "grid",
    "sweep.prune": "halving",
    "sweep.seeds": 2,
    "sweep.first_validation": 1,
    "sweep.parameters": {"train.lr": [5e-6, 2e-5, 5e-5, 1e-4, 2e-4, 4e-4]},
}
HOUR_S = 3600


@pytest.mark.long
@pytest.mark.timeout(HOUR_S)
def test_killed_sweep_ends_with_exactly_the_same_table_in_float32(
    real_cache: None, workspace: Path
) -> None:
    """In bfloat16 two uninterrupted runs with one seed differ already, since rounding depends on
    which rollouts share a batch; in float32 the sampled tokens are the same."""
    project = make_hello(workspace)
    settings = {**SETTINGS, "model.name": str(find_model(STARTER))}
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
