"""Faults become data or one clear sentence, and the run continues or can be resumed."""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import aclosing
from pathlib import Path

import psutil
import pytest

from engine.launcher.local import discovery_file, find
from engine.protocol.events.run import (
    BatchClosed,
    LogWritten,
    RunFailed,
    RunFinished,
    StepFinished,
    TrajectoryRecorded,
)
from engine.protocol.problems import Refused
from engine.protocol.records.runs import RunSummary
from engine.protocol.requests.runs import Command, StartRun, TrajectoryQuery
from engine.storage.run_db.reader import RunReader
from engine.storage.run_folder.run import DATABASE
from tests.engine_http.conftest import (
    AGENT,
    ASK,
    ROOT,
    Engine,
    make_project,
    start_engine,
    stop_engine,
    until,
)
from tests.support.processes import is_alive

BODY = """
import asyncio, os, sys, time, threading, subprocess
calls = 0
async def rollout(scenario, model):
    global calls
    calls += 1
    mine = calls
    reply = await ask(model, scenario["q"])
    if scenario["id"] == "s1":
        {fault}
    return {{"reward": sum(c.isalpha() for c in reply) / 8}}
"""


FAULTS = (
    ("raise KeyError('sources')", "agent.raised", "KeyError: 'sources'"),
    ("return None", "reward.none", "has no score"),
    ("return {{'reward': float('nan')}}", "agent.bad_result", "nan"),
    ("return {{'reward': 'high'}}", "agent.bad_result", "not a number"),
    ("await asyncio.sleep(60)", "agent.timeout", "timed out after 6 s"),
    ("print('x' * 50_000_000); raise ValueError('flooded')", "agent.raised", "flooded"),
)


def test_failing_rollouts_are_unscored_with_their_reason(
    workspace: Path, tiny_model: Path, engine: Engine
) -> None:
    """Run one scenario per fault and a good one at the same time in one agent process."""
    agent = BODY.replace('    if scenario["id"] == "s1":\n        {fault}\n', "")
    faults = "".join(
        f'    if scenario["id"] == "f{n}":\n        {fault}\n'
        for n, (fault, _, _) in enumerate(FAULTS)
    )
    agent = ASK + agent.replace("    return {{", faults + "    return {{").format()
    project = make_project(workspace / "faulty", tiny_model, agent)
    names = ["s0", *(f"f{n}" for n in range(len(FAULTS)))]
    lines = [json.dumps({"id": name, "q": f"Say {name}"}) + "\n" for name in names]
    (project / "scenarios" / "train.jsonl").write_text("".join(lines))
    settings = {"train.steps": 1, "train.groups": len(names), "train.validate_every": 0}
    run = engine.train(project, **settings, **{"agent.timeout_s": 6})
    events = engine.wait(run)
    assert isinstance(events[-1], RunFinished), events[-1]
    trajectories = [e.trajectory for e in events if isinstance(e, TrajectoryRecorded)]
    for name, (_, code, message) in zip(names[1:], FAULTS, strict=True):
        of_fault = [t for t in trajectories if t.scenario_id == name]
        assert len(of_fault) == 4
        assert all(t.reward is None for t in of_fault)
        assert {t.problem.code for t in of_fault if t.problem} == {code}
        assert all(t.problem and message in t.problem.message for t in of_fault)
    assert [t.reward is None for t in trajectories if t.scenario_id == "s0"] == [False] * 4
    (step,) = [e for e in events if isinstance(e, StepFinished)]
    assert step.metrics["unscored"] == 4 * len(FAULTS)
    page = engine.call(lambda c: c.trajectories(run.id, TrajectoryQuery(state="unscored")))
    assert page.total == 4 * len(FAULTS)


@pytest.mark.parametrize(
    ("fault", "code", "expected_message"),
    [
        ("time.sleep(60)", "agent.timeout", "timed out after 4 s"),
        ("os._exit(3)", "agent.died", "exit 3"),
        ("os.kill(os.getpid(), 9)", "agent.died", "SIGKILL"),
    ],
)
def test_rollout_that_ends_its_process_is_the_only_failure(
    workspace: Path, tiny_model: Path, engine: Engine, fault: str, code: str, expected_message: str
) -> None:
    project = make_project(workspace / "faulty", tiny_model, ASK + BODY.format(fault=fault))
    run = engine.train(
        project,
        **{"train.steps": 2, "train.group_size": 2, "train.validate_every": 0},
        **{"agent.timeout_s": 4},
    )
    events = engine.wait(run)
    assert isinstance(events[-1], RunFinished), events[-1]
    trajectories = [e.trajectory for e in events if isinstance(e, TrajectoryRecorded)]
    failed = [t for t in trajectories if t.reward is None]
    assert {t.scenario_id for t in failed} == {"s1"}
    assert all(
        t.problem and t.problem.code == code and expected_message in t.problem.message
        for t in failed
    )
    assert len([t for t in trajectories if t.scenario_id == "s1"]) == len(failed) > 0
    steps = [e for e in events if isinstance(e, StepFinished)]
    assert sum(s.metrics["unscored"] for s in steps) == len(failed)
    page = engine.call(lambda c: c.trajectories(run.id, TrajectoryQuery(state="unscored")))
    assert page.total == len(failed)


@pytest.mark.parametrize("then", ["pass", "os.kill(os.getpid(), 9)"])
def test_processes_started_by_agent_are_killed(
    workspace: Path, tiny_model: Path, engine: Engine, then: str
) -> None:
    marker = workspace / "started"
    shell = f"setsid sleep 987 & echo started >>{marker}; exec sleep 987"
    fault = f"""subprocess.Popen(["sh", "-c", {shell!r}], start_new_session=True)
        while not os.path.exists({str(marker)!r}): time.sleep(0.01)
        {then}"""
    project = make_project(workspace / "forks", tiny_model, ASK + BODY.format(fault=fault))
    run = engine.train(project, **{"train.steps": 3})
    engine.wait(run)
    assert marker.read_text().startswith("started")
    until(lambda: not sleepers())


def sleepers() -> list[psutil.Process]:
    return [p for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"] == ["sleep", "987"]]


def test_shell_command_as_agent(workspace: Path, tiny_model: Path, engine: Engine) -> None:
    project = make_project(workspace / "command", tiny_model, "")
    (project / "agent.sh").write_text(
        'curl -s "$OPENAI_BASE_URL/chat/completions" -H "Authorization: Bearer $OPENAI_API_KEY" '
        '-H "content-type: application/json" '
        '-d \'{"model": "policy", "messages": [{"role": "user", "content": "hi"}]}\' >/dev/null\n'
        'echo "$ATELIER_SCENARIO" >&2\n'
        'echo \'{"reward": 0.5, "metrics": {"shell": 1}}\'\n'
    )
    run = engine.train(project, **{"agent.command": "sh agent.sh", "train.steps": 1})
    events = engine.wait(run)
    trajectories = [e.trajectory for e in events if isinstance(e, TrajectoryRecorded)]
    assert {t.reward for t in trajectories} == {0.5}
    assert all(t.turns == 1 for t in trajectories)


@pytest.mark.parametrize(
    ("agent", "expected_message"),
    [
        ("import nothing_like_this", "agent.py cannot be imported: ModuleNotFoundError"),
        ("x = 1", "no function `rollout"),
        ("def rollout(:", "SyntaxError"),
    ],
)
def test_broken_agent_fails_run_with_one_sentence(
    workspace: Path, tiny_model: Path, engine: Engine, agent: str, expected_message: str
) -> None:
    run = engine.train(make_project(workspace / "broken", tiny_model, agent))
    last = engine.wait(run)[-1]
    assert isinstance(last, RunFailed)
    assert expected_message in last.problem.message
    assert "agent.py" in str(last.problem)


def test_invalid_settings_are_rejected_before_start(
    workspace: Path, tiny_model: Path, engine: Engine
) -> None:
    project = make_project(workspace / "wrong", tiny_model)
    for overrides, message in [
        ({"train.stepz": 1}, "Did you mean `steps`"),
        ({"model.name": "no-such-model"}, "no model called no-such-model"),
        ({"model.name": str(workspace)}, "no config.json"),
        ({"scenarios.train": "nope.jsonl"}, "does not exist"),
    ]:
        with pytest.raises(Refused, match=message):
            engine.train(project, **overrides)
    assert not (project / "runs").exists()


def test_second_run_is_rejected_during_training(engine: Engine, project: Path) -> None:
    run = engine.train(project, **{"train.steps": 50})
    with pytest.raises(Refused, match="training on this machine"):
        engine.train(project)
    engine.call(lambda c: c.command(run.id, Command(action="stop_now")))


def test_second_engine_is_rejected_but_stale_lock_is_not(
    own_engine: Engine, workspace: Path
) -> None:
    engine = own_engine
    command = [sys.executable, "-m", "engine", "serve", "--workspace", str(workspace)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.returncode == 1
    assert f"process {engine.process.pid}" in done.stderr
    engine.kill()
    assert asyncio.run(find(workspace)) is None  # the stale discovery file is ignored
    again = start_engine(workspace)
    stop_engine(again)


def test_terminated_engine_stops_its_run_and_next_engine_starts(
    own_engine: Engine, workspace: Path, project: Path
) -> None:
    engine = own_engine
    run = engine.train(project, **{"train.steps": 500})
    engine.wait_for(run, "step.finished")
    engine.process.terminate()
    until(lambda: not discovery_file(workspace).exists())
    again = start_engine(workspace)
    assert engine.process.wait(20) == 0
    assert again.call(lambda c: c.run(run.id)).state == "stopped"
    stop_engine(again)


def test_run_of_newer_version_is_listed_as_problem(engine: Engine, project: Path) -> None:
    folder = project / "runs" / "01ABCDEFGHJKMNPQRSTVWXYZ00"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps({"schema_version": 99, "id": folder.name}))
    (shown,) = engine.call(lambda c: c.runs(str(project)))
    assert shown.problem is not None
    assert "newer version" in shown.problem.message


def test_killed_policy_is_restarted_without_losing_steps(engine: Engine, project: Path) -> None:
    run = engine.train(project, **{"train.steps": 4, "train.checkpoint_every": 1})
    engine.wait_for(run, "step.finished")
    (policy,) = engine.child_processes("engine.policy.torch")
    policy.kill()
    events = engine.wait(run)
    assert isinstance(events[-1], RunFinished)
    assert "worker.restarted" in [e.kind for e in events]  # type: ignore[union-attr]
    assert [e.step for e in events if isinstance(e, StepFinished)] == [1, 2, 3, 4]


ATTEMPTS = 8
"""Rollouts per step: two groups of four."""

KILLS = int(os.environ.get("ATELIER_KILLS", "6"))
WORDS = {"studio": "", "engine": "", "policy": "engine.policy.torch", "agent": "host.py"}


def test_random_kills_lose_no_acknowledged_event(workspace: Path, tiny_model: Path) -> None:
    """Kill studio, engine, policy or agent at random moments; the run continues or is resumed."""
    chance = random.Random(7)
    project = make_project(workspace / "letters", tiny_model, AGENT)
    engine = start_engine(workspace)
    studio = start_studio(workspace)
    run = engine.train(
        project, **{"train.steps": 4 * KILLS, "train.checkpoint_every": 2, "train.keep_last": None}
    )
    acknowledged: dict[int, str] = {}
    for _ in range(KILLS):
        time.sleep(chance.uniform(0.1, 3.0))
        acknowledged |= stored_events(engine, run.id)
        children = psutil.Process(engine.process.pid).children(recursive=True)
        victim = chance.choice(list(WORDS))
        if victim == "studio":
            studio.kill()
            studio.wait()
            studio = start_studio(workspace)
        elif victim == "engine" or not engine.child_processes(WORDS[victim]):
            studio.kill()  # a running studio starts the next engine by itself
            studio.wait()
            engine.kill()
            until(lambda children=children: not any(is_alive(p) for p in children))  # type: ignore[misc]
            engine = start_engine(workspace)
            engine.call(lambda c: c.project(str(project)))
            studio = start_studio(workspace)
        else:
            chance.choice(engine.child_processes(WORDS[victim])).send_signal(signal.SIGKILL)
        now = stored_events(engine, run.id)
        assert acknowledged.items() <= now.items(), "an acknowledged event is lost"
        resume_if_stopped(engine, run)
    studio.kill()
    studio.wait()
    # at least one checkpoint is compared below
    until(lambda: resume_if_stopped(engine, run) and has_checkpoint(run), 60)
    if engine.call(lambda c: c.run(run.id)).state == "running":
        engine.call(lambda c: c.command(run.id, Command(action="stop_now")))
    seqs = list(stored_events(engine, run.id))
    assert seqs == list(range(1, 1 + len(seqs)))
    rollouts = rollouts_by_step(run)
    assert list(rollouts.items()) == [(step, ATTEMPTS) for step in range(1, 1 + len(rollouts))]
    check_replay(engine, run)
    stop_engine(engine)


def resume_if_stopped(engine: Engine, run: RunSummary) -> bool:
    """Resume the run if the last kill has stopped it."""
    if engine.call(lambda c: c.run(run.id)).state in ("stopped", "failed"):
        engine.call(lambda c: c.command(run.id, Command(action="resume")))
    return True


def has_checkpoint(run: RunSummary) -> bool:
    reader = RunReader(Path(run.path) / DATABASE)
    try:
        return bool(reader.events_of("checkpoint.saved"))
    finally:
        reader.close()


def rollouts_by_step(run: RunSummary) -> dict[int, int]:
    """Return the number of rollouts of each finished step; every batch was closed once."""
    reader = RunReader(Path(run.path) / DATABASE)
    closed = [e.step for e in reader.events_of("batch.closed") if isinstance(e, BatchClosed)]
    finished = [e.step for e in reader.events_of("step.finished") if isinstance(e, StepFinished)]
    counts = {step: len(reader.stored("train", step)) for step in finished}
    reader.close()
    assert len(closed) == len(set(closed))
    assert len(finished) == len(set(finished))
    assert set(closed) >= set(finished)
    return counts


def check_replay(engine: Engine, run: RunSummary) -> None:
    """Replay the run without interruption: the checkpoints must be identical."""
    request = StartRun(project=run.project_path, origin=f"{run.id}@0", replay=True)
    replay = engine.call(lambda c: c.start_run(request))
    events = engine.wait(replay, timeout_s=600)
    assert isinstance(events[-1], RunFinished), events[-1]
    messages = [e.text for e in events if isinstance(e, LogWritten) and e.source == "replay"]
    assert messages
    assert all("is identical to that of" in words for words in messages), messages


def start_studio(workspace: Path) -> "subprocess.Popen[bytes]":
    """Start the studio on the workspace, offscreen."""
    return subprocess.Popen(
        [sys.executable, "-m", "studio", "--workspace", str(workspace)],
        cwd=ROOT,
        env={**os.environ, "QT_QPA_PLATFORM": "offscreen"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def stored_events(engine: Engine, run_id: str) -> dict[int, str]:
    """Return every event the engine has acknowledged, by seq."""

    async def read(client) -> dict[int, str]:  # type: ignore[no-untyped-def]
        events: dict[int, str] = {}
        last = (await client.run(run_id)).seq
        async with asyncio.timeout(20), aclosing(client.events(run_id)) as stream:
            while max(events, default=0) < last:
                event = await anext(stream)
                if event.seq:
                    events[event.seq] = event.model_dump_json()
        return events

    return engine.call(read)
