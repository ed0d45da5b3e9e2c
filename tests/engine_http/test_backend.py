"""Whole runs on other backends: a vLLM server that samples, two processes that train."""

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from engine.models import find_model
from engine.protocol.events import (
    PolicyLoaded,
    RunFinished,
    StepFinished,
    ValidationFinished,
    WorkerRestarted,
)
from engine.protocol.requests import Command
from tests.engine_http.conftest import (
    ROOT,
    Engine,
    is_alive,
    start_engine,
    stop_engine,
    until,
)

STARTER = "smollm2-135m-instruct"
SMALL = {
    "train.steps": 3,
    "train.groups": 2,
    "train.group_size": 4,
    "train.validate_every": 0,
    "train.checkpoint_every": 1,
}


@pytest.mark.timeout(420)
def test_hello_trains_through_vllm_and_a_killed_engine_leaves_nothing(
    real_cache: None, workspace: Path
) -> None:
    """The starter on the processor; the engine is killed in the middle and the run goes on."""
    project = workspace / "hello"
    new = [sys.executable, "-m", "engine", "new", str(project), "--sample", "hello"]
    subprocess.run(new, check=True, cwd=ROOT, capture_output=True)
    settings = {**SMALL, "backend.sampler": "vllm", "model.name": str(find_model(STARTER))}
    engine = start_engine(workspace)
    try:
        run = engine.train(project, **settings)
        engine.wait_for(run, "step.finished", 200)
        family = psutil.Process(engine.process.pid).children(recursive=True)
        assert sum("VLLM" in " ".join(p.cmdline()) for p in family) >= 2
        engine.kill()
        until(lambda: not any(is_alive(process) for process in family), 15)
        engine = start_engine(workspace)
        engine.call(lambda c: c.project(str(project)))
        engine.call(lambda c: c.command(run.id, Command(action="resume")))
        events = engine.wait(run, 200)
    finally:
        stop_engine(engine)
    assert isinstance(events[-1], RunFinished)
    loaded = [e for e in events if isinstance(e, PolicyLoaded)]
    assert {(e.dtype, e.sampler) for e in loaded} == {("float32", "vLLM 0.31.0, float32")}
    steps = [e.metrics for e in events if isinstance(e, StepFinished)]
    assert len(steps) == 3
    gaps = [m[key] for m in steps for key in ("logprob_gap/max", "publish_gap") if key in m]
    print(f"gaps through the run: {[f'{gap:.1e}' for gap in gaps]} nats")
    assert gaps
    assert max(gaps) <= 1e-4
    assert all(m["unscored"] == 0 for m in steps)
    assert all(e.unscored == 0 for e in events if isinstance(e, ValidationFinished))


def test_an_engine_says_what_it_has(engine: Engine) -> None:
    facts = engine.call(lambda c: c.backends())
    assert facts.vllm.state in ("ready", "comes", "missing")
    assert bool(facts.vllm.why) == (facts.vllm.state == "missing")


def test_a_killed_rank_costs_a_restart_and_no_step(
    engine: Engine, project: Path, workspace: Path
) -> None:
    run = engine.train(project, **{"backend.processes": 2, "train.steps": 6, "train.lr": 1e-3})
    engine.wait_for(run, "step.finished")
    ranks = engine.children("engine.policy.torch")
    assert len(ranks) == 2
    ranks[1].send_signal(signal.SIGKILL)
    events = engine.wait(run)
    assert isinstance(events[-1], RunFinished)
    assert [e.worker for e in events if isinstance(e, WorkerRestarted)] == ["policy"]
    assert [e.step for e in events if isinstance(e, StepFinished)] == list(range(1, 7))
    assert not any(is_alive(rank) for rank in ranks)
