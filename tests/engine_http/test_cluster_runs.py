"""Runs whose policy is at a cluster: a real SkyRL server on the CPU, and a small cluster whose
connections, client processes and engines are killed."""

import contextlib
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from engine.integrations.skyrl.server import CLIENT, SkyrlPlan, free_port, skyrl_server
from engine.models.registry import find_model
from engine.protocol.events.run import PolicyLoaded, RunFailed, StepFinished
from engine.protocol.events.sft import WarmupFinished
from engine.protocol.problems import AtelierError
from engine.protocol.records.runs import ACTIVE_STATES, RunSummary
from engine.protocol.requests.clusters import ClusterSpec, SkyrlSettings
from engine.protocol.requests.runs import Command, StartEvaluation
from tests.engine_http.conftest import ROOT, Engine, make_project, start_engine, stop_engine, until
from tests.engine_http.test_sft import losses, start_sft, write_demonstrations
from tests.support.loop_thread import InLoop
from tests.support.tinker_server import TinkerServer, tinker_server

pytestmark = pytest.mark.long
STARTER = "smollm2-135m-instruct"
KILLS = 10


@pytest.fixture
def skyrl(real_cache: None, tmp_path: Path) -> Iterator[ClusterSpec]:
    """Cluster of a SkyRL server with the starter model."""
    loop = InLoop("skyrl")
    stack = contextlib.AsyncExitStack()
    plan = SkyrlPlan(
        settings=SkyrlSettings(model=STARTER),
        model=find_model(STARTER),
        state=tmp_path / "skyrl",
        port=free_port(),
    )
    loop.do(stack.enter_async_context(skyrl_server(plan, tmp_path / "log")), 300)
    try:
        yield ClusterSpec(name="skyrl", address=plan.address, client=CLIENT)
    finally:
        loop.do(stack.aclose(), 60)
        loop.end()


@pytest.mark.timeout(2400)
@pytest.mark.parametrize("seed", [0, 1])
def test_hello_trains_on_skyrl(skyrl: ClusterSpec, workspace: Path, seed: int) -> None:
    project = workspace / f"hello-{seed}"
    new = [sys.executable, "-m", "engine", "new", str(project), "--sample", "hello"]
    subprocess.run(new, check=True, cwd=ROOT, capture_output=True)
    engine = start_engine(workspace)
    try:
        engine.call(lambda client: client.put_cluster(skyrl))
        run = engine.train(
            project,
            **{
                "backend.cluster": "skyrl",
                "model.name": str(find_model(STARTER)),
                "train.seed": seed,
                "train.steps": 8,
                "train.lr": 5e-4,
                "train.validate_every": 0,
            },
        )
        events = engine.wait(run, 2300)
    finally:
        stop_engine(engine)
    assert not [event for event in events if isinstance(event, RunFailed)]
    (loaded,) = [event for event in events if isinstance(event, PolicyLoaded)]
    assert loaded.cluster is not None
    assert "mean over sequences" in loaded.cluster.words
    steps = [event.metrics for event in events if isinstance(event, StepFinished)]
    rewards = [step["reward/mean"] for step in steps]
    print(f"seed {seed}: {[round(reward, 2) for reward in rewards]}")
    assert rewards[0] < 0.15
    assert max(rewards[-3:]) >= 0.5
    gaps = [step["logprob_gap/max"] for step in steps if "logprob_gap/max" in step]
    assert gaps  # a step without signal is skipped and has none
    assert max(gaps) <= 1e-3


@pytest.mark.timeout(600)
def test_killed_client_cluster_and_engine_lose_nothing(
    workspace: Path, real_cache: None, tiny_model: Path
) -> None:
    """At random moments the client process or the engine is killed, or the cluster closes its
    connections; the run is resumed where its restarts are used up."""
    chance = random.Random(4)
    project = make_project(workspace / "project", tiny_model)
    engine = start_engine(workspace)
    with tinker_server() as server:
        spec = ClusterSpec(name="box", address=server.address, client="tinker-json")
        engine.call(lambda client: client.put_cluster(spec))
        run = engine.train(
            project,
            **{
                "backend.cluster": "box",
                "train.steps": 8,
                "train.checkpoint_every": 1,
                "train.validate_every": 0,
            },
        )
        try:
            kinds = ["client", "cluster", "engine"] * KILLS
            for kind in kinds[:KILLS]:
                time.sleep(chance.uniform(0.5, 6))
                engine = interrupt(engine, server, kind, workspace)
                resume(engine, run)
            events = finish(engine, run)
        finally:
            stop_engine(engine)
        steps = [event.step for event in events if isinstance(event, StepFinished)]
        assert sorted(set(steps)) == list(range(1, 9))
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        assert not server.models


def interrupt(engine: Engine, server: TinkerServer, kind: str, workspace: Path) -> Engine:
    if kind == "client":
        for process in engine.child_processes("engine.policy.tinker.client"):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGKILL)
        return engine
    if kind == "cluster":
        server.cuts = True
        time.sleep(1.0)
        server.cuts = False
        return engine
    engine.kill()
    return start_engine(workspace)


def resume(engine: Engine, run: RunSummary) -> None:
    """Resume a run that has no process, as a person would."""

    async def work(client):  # type: ignore[no-untyped-def]
        if (await client.run(run.id)).state not in (*ACTIVE_STATES, "finished"):
            with contextlib.suppress(AtelierError):  # it is starting already
                await client.command(run.id, Command(action="resume"))

    engine.call(work)


def finish(engine: Engine, run: RunSummary) -> list:  # type: ignore[type-arg]
    """Wait for the last step, and resume the run whenever it has failed; returns its events."""
    end = time.monotonic() + 240
    while time.monotonic() < end:
        state = engine.call(lambda client: client.run(run.id)).state
        if state == "finished":
            return engine.wait(run, 30)
        if state not in ACTIVE_STATES:
            resume(engine, run)
        time.sleep(0.5)
    raise AssertionError(f"the run is {state}")


@pytest.mark.timeout(300)
def test_supervised_runs_and_warm_ups_train_at_a_cluster(
    workspace: Path, real_cache: None, tiny_model: Path
) -> None:
    """SFT lowers the held-out loss; a warm-up resets the optimizer and RL goes on after it."""
    project = make_project(workspace / "taught", tiny_model)
    write_demonstrations(project)
    engine = start_engine(workspace)
    try:
        with tinker_server(sequences="mean", tokens="mean") as server:
            spec = ClusterSpec(name="box", address=server.address, client="tinker-json")
            engine.call(lambda client: client.put_cluster(spec))
            sft = start_sft(engine, project, **{"backend.cluster": "box", "sft.lr": 0.05})
            events = engine.wait(sft)
            held_out = losses(events)
            assert len(held_out) > 1
            assert held_out[max(held_out)] < 0.8 * held_out[min(held_out)]
            warm = {"file": "demonstrations.jsonl", "epochs": 1, "lr": 0.05}
            run = engine.train(
                project, **{"backend.cluster": "box", "train.warmup": warm, "train.steps": 2}
            )
            events = engine.wait(run)
            assert [e.step for e in events if isinstance(e, StepFinished)] == [1, 2]
            assert [e for e in events if isinstance(e, WarmupFinished)]
            until(lambda: not server.models)
    finally:
        stop_engine(engine)


@pytest.mark.timeout(300)
def test_run_needs_no_weights_here_but_its_evaluation_does(
    workspace: Path, real_cache: None, tiny_model: Path, tmp_path: Path
) -> None:
    bare = tmp_path / "bare" / tiny_model.name
    shutil.copytree(tiny_model, bare, ignore=shutil.ignore_patterns("*.safetensors"))
    project = make_project(workspace / "bare", bare)
    engine = start_engine(workspace)
    try:
        with tinker_server(sequences="mean", tokens="mean") as server:
            spec = ClusterSpec(name="box", address=server.address, client="tinker-json")
            engine.call(lambda client: client.put_cluster(spec))
            run = engine.train(project, **{"backend.cluster": "box", "train.steps": 2})
            events = engine.wait(run)
            assert [e.step for e in events if isinstance(e, StepFinished)] == [1, 2]
        with pytest.raises(AtelierError, match="no safetensors weights"):
            engine.train(project)
        request = StartEvaluation(project=str(project), models=[f"{run.name}@2"])
        asked = engine.call(lambda client: client.start_evaluation(request))
        (failed,) = [event for event in engine.wait(asked, 60) if isinstance(event, RunFailed)]
        assert "no safetensors weights" in failed.problem.message
    finally:
        stop_engine(engine)
