"""Whole runs on other backends: sampling by a vLLM server, training in two processes."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from engine.client import EngineClient
from engine.models.registry import find_model
from engine.protocol.events.run import (
    Event,
    PolicyLoaded,
    RunFailed,
    RunFinished,
    StepFinished,
    UnknownEvent,
    WorkerRestarted,
)
from engine.protocol.problems import Refused
from engine.protocol.requests.runs import Command
from tests.engine_http.conftest import ROOT, Engine, make_project, start_engine, stop_engine, until
from tests.support.processes import is_alive

STARTER = "smollm2-135m-instruct"
SMALL = {
    "train.steps": 9,
    "train.groups": 2,
    "train.group_size": 4,
    "train.validate_every": 0,
    "train.checkpoint_every": 1,
}


@pytest.mark.long
@pytest.mark.timeout(420)
def test_hello_trains_with_vllm_and_survives_worker_kill(real_cache: None, workspace: Path) -> None:
    """Starter model on the CPU.

    A server process is killed during the run: no rollout is lost. Then the engine is killed: no
    process stays.
    """
    project = workspace / "hello"
    new = [sys.executable, "-m", "engine", "new", str(project), "--sample", "hello"]
    subprocess.run(new, check=True, cwd=ROOT, capture_output=True)
    settings = {**SMALL, "backend.sampler": "vllm", "model.name": str(find_model(STARTER))}
    engine = start_engine(workspace)
    try:
        run = engine.train(project, **settings)
        engine.wait_for(run, "step.finished", 200)
        (victim,) = list(engine.child_processes("VLLM::Worker"))
        victim.send_signal(signal.SIGKILL)
        events = engine.call(lambda client: until_step(client, run.id, 3))
        children = psutil.Process(engine.process.pid).children(recursive=True)
        assert sum("VLLM" in " ".join(p.cmdline()) for p in children) >= 2
        engine.kill()
        until(lambda: not any(is_alive(process) for process in children), 15)
    finally:
        stop_engine(engine)
    (loaded,) = [e for e in events if isinstance(e, PolicyLoaded)]
    assert (loaded.dtype, loaded.sampler) == ("float32", "vLLM 0.31.0, float32")
    (restart,) = [e for e in events if isinstance(e, WorkerRestarted)]
    assert restart.worker == "sampler"
    steps = [e.metrics for e in events if isinstance(e, StepFinished)]
    gaps = [m[key] for m in steps for key in ("logprob_gap/max", "publish_gap") if key in m]
    print(f"gaps through the run: {[f'{gap:.1e}' for gap in gaps]} nats")
    assert gaps
    assert max(gaps) <= 1e-4
    assert [m["trajectories"] for m in steps] == [8, 8, 8]
    assert all(m["unscored"] == 0 for m in steps)


async def until_step(client: EngineClient, run: str, step: int) -> list[Event | UnknownEvent]:
    """Return all events until the end of a step."""
    events: list[Event | UnknownEvent] = []
    async with asyncio.timeout(240):
        async for event in client.events(run):
            events.append(event)
            if isinstance(event, RunFailed):
                raise AssertionError(str(event.problem))
            if isinstance(event, StepFinished) and event.step == step:
                return events
    raise AssertionError("the stream ended")


def test_engine_reports_backend_facts(engine: Engine) -> None:
    facts = engine.call(lambda c: c.backends())
    assert facts.vllm.state in ("ready", "comes", "missing")
    assert bool(facts.vllm.why) == (facts.vllm.state == "missing")


def test_killed_rank_costs_one_restart_and_no_step(
    engine: Engine, project: Path, workspace: Path
) -> None:
    run = engine.train(project, **{"backend.processes": 2, "train.steps": 6, "train.lr": 1e-3})
    engine.wait_for(run, "step.finished")
    ranks = engine.child_processes("engine.policy.torch")
    assert len(ranks) == 2
    ranks[1].send_signal(signal.SIGKILL)
    events = engine.wait(run)
    assert isinstance(events[-1], RunFinished)
    assert [e.worker for e in events if isinstance(e, WorkerRestarted)] == ["policy"]
    assert [e.step for e in events if isinstance(e, StepFinished)] == list(range(1, 7))
    assert not any(is_alive(rank) for rank in ranks)


def test_asynchronous_rollouts_are_one_update_old_and_survive_kill(
    workspace: Path, tiny_model: Path
) -> None:
    project = make_project(workspace / "letters", tiny_model)
    engine = start_engine(workspace)
    try:
        run = engine.train(project, **{"train.staleness": 1, "train.steps": 6})
        engine.wait_for(run, "step.finished")
        engine.kill()
        engine = start_engine(workspace)
        engine.call(lambda c: c.project(str(project)))
        engine.call(lambda c: c.command(run.id, Command(action="resume")))
        events = engine.wait(run)
    finally:
        stop_engine(engine)
    assert isinstance(events[-1], RunFinished)
    steps = [e for e in events if isinstance(e, StepFinished)]
    assert [e.step for e in steps] == list(range(1, 7))
    ages = [e.metrics["staleness"] for e in steps]
    assert ages[0] == 0
    assert all(0 <= age <= 1 for age in ages)
    assert sum(ages) >= 3
    assert all(e.metrics["unscored"] == 0 and e.metrics["trajectories"] == 8 for e in steps)


@pytest.mark.long
def test_run_with_unsloth_model_loading(
    real_cache: None, workspace: Path, tiny_model: Path, own_engine: Engine
) -> None:
    project = make_project(workspace / "letters", tiny_model)
    run = own_engine.train(project, **{"backend.trainer": "unsloth", "train.steps": 2})
    events = own_engine.wait(run)
    assert isinstance(events[-1], RunFinished)
    steps = [e.metrics for e in events if isinstance(e, StepFinished)]
    assert len(steps) == 2
    assert max(m["logprob_gap/max"] for m in steps) <= 1e-4


def test_quantized_weights_without_unsloth_are_rejected(engine: Engine, project: Path) -> None:
    with pytest.raises(Refused, match="weights = 4bit, but trainer = torch cannot quantize"):
        engine.train(project, **{"backend.weights": "4bit"})
