"""Command line, as used by a person or a program."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from engine.launcher.local import find
from engine.protocol.events.run import RunFailed, RunFinished, RunStopped, decode
from engine.protocol.records.runs import Trajectory
from engine.protocol.requests.runs import TrajectoryLine
from tests.engine_http.conftest import ROOT, Engine, make_project, stop_engine
from tests.support.engine_starter import run_command


def run(*arguments: str, workspace: Path) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "ATELIER_WORKSPACE": str(workspace)}
    return run_command(*arguments, environment=environment, timeout_s=200)


@pytest.mark.timeout(60)
def test_commands_run_while_a_thread_waits_for_an_engine(own_engine: Engine) -> None:
    """The studio's launcher has such a thread, and tests fork engines and commands."""
    waiting = threading.Thread(target=own_engine.process.wait)
    waiting.start()
    assert run_command("--help").returncode == 0
    assert waiting.is_alive()
    stop_engine(own_engine)
    waiting.join(10)
    assert not waiting.is_alive()


def test_train_json_prints_only_events_and_run_is_readable(project: Path, workspace: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "engine", "train", str(project), "--steps", "2", "--json"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=200,
        env={**os.environ, "ATELIER_WORKSPACE": str(workspace)},
        check=False,
    )
    events = [decode(line) for line in done.stdout.splitlines()]
    assert isinstance(events[-1], RunFinished)
    assert done.returncode == 0
    folder = next((project / "runs").iterdir())
    rows = run("trajectories", str(folder), "--json", "--limit", "3", workspace=workspace)
    records = [Trajectory.model_validate_json(line) for line in rows.stdout.splitlines()]
    assert len(records) == 3
    listed = run("runs", str(project), "--json", workspace=workspace)
    assert json.loads(listed.stdout)["state"] == "finished"
    assert "finished" in run("runs", str(project), workspace=workspace).stdout
    assert "reward" in run("trajectories", str(folder), workspace=workspace).stdout
    name = json.loads(listed.stdout)["name"]
    file = folder.parent / "found.jsonl"
    query = ("--filter", "reward >= 0 and split:train", "--jsonl", str(file))
    assert "written to" in run("trajectories", name, *query, workspace=workspace).stdout
    lines = [TrajectoryLine.model_validate_json(line) for line in file.read_text().splitlines()]
    assert lines
    assert {line.split for line in lines} == {"train"}
    wrong = run("trajectories", name, "--filter", "rewards > 1", workspace=workspace)
    assert wrong.returncode != 0
    assert "`rewards` is not a field (character 1). Did you mean `reward`?" in wrong.stderr
    for command in ("checkpoints", "trajectories", "scenarios", "agreement"):
        assert run(command, name, workspace=workspace).returncode == 0
    shown = run("show", name, records[0].id, workspace=workspace)
    assert shown.returncode == 0, shown.stderr
    for part in (records[0].id, "reward", "advantage", " tokens", "[user]", "[assistant]"):
        assert part in shown.stdout
    whole = run("show", name, records[0].id, "--json", workspace=workspace)
    assert Trajectory.model_validate_json(whole.stdout.splitlines()[0]) == records[0]
    assert asyncio.run(find(workspace)) is None  # the engine started by train ended with it


def test_closed_pipe_ends_with_code_141(project: Path, workspace: Path) -> None:
    """Like `atelier models list | head -0`: the output is not read."""
    program = "import sys; from engine.cli.main import main; sys.exit(main())"
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-c", program, "models", "list"],
        stdout=writer, stderr=subprocess.PIPE, cwd=ROOT, timeout=60, check=False,
    )  # fmt: skip
    os.close(writer)
    assert done.returncode == 141
    assert done.stderr == b""


def test_train_prints_summary(engine: Engine, project: Path) -> None:
    done = run("train", str(project), "--steps", "1", "--seed", "3", workspace=engine.workspace)
    assert "step   1 of 1  reward" in done.stdout
    assert "Chat format: " in done.stdout
    assert "validation" in done.stdout
    assert str(project / "runs") in done.stdout
    assert done.returncode == 0


def test_failed_run_exits_1_and_invalid_usage_2(engine: Engine, project: Path) -> None:
    (project / "agent.py").write_text("raise RuntimeError('no')")
    failed = run("train", str(project), "--json", workspace=engine.workspace)
    assert isinstance(decode(failed.stdout.splitlines()[-1]), RunFailed)
    assert failed.returncode == 1
    for arguments in (
        ["train"],
        ["train", str(project), "--set", "train.lr"],
        ["train", str(project), "--set", "train.lrr=1"],
        ["train", str(project), "--steps", "0"],
        ["fly"],
    ):
        done = run(*arguments, workspace=engine.workspace)
        assert done.returncode == 2, arguments
        assert len(done.stderr.strip().splitlines()) == 1
        assert "Traceback" not in done.stderr


def test_interrupt_stops_after_step_with_exit_code_3(engine: Engine, project: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "engine", "train", str(project), "--steps", "60", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=ROOT,
        env={**os.environ, "ATELIER_WORKSPACE": str(engine.workspace)},
    )
    assert process.stdout is not None
    with process.stdout as lines:
        for line in lines:
            if decode(line).kind == "step.finished":  # type: ignore[union-attr]
                process.send_signal(signal.SIGINT)
                break
        rest = [decode(line) for line in lines]
    assert isinstance(rest[-1], RunStopped)
    assert process.wait(timeout=60) == 3
    resume = ("train", str(project), "--resume", rest[-1].run_id, "--steps", "2")
    again = run(*resume, workspace=engine.workspace)
    assert "resumes after step" in again.stdout


@pytest.mark.parametrize("json_flag", [[], ["--json"]])
def test_doctor(json_flag: list[str], workspace: Path) -> None:
    started_at = time.monotonic()
    done = run("doctor", *json_flag, workspace=workspace)
    names = (
        [json.loads(line)["name"] for line in done.stdout.splitlines()]
        if json_flag
        else done.stdout
    )
    assert "SQLite" in names
    assert time.monotonic() - started_at < 60


def test_new_project_is_not_overwritten(tmp_path: Path, workspace: Path) -> None:
    made = run("new", str(tmp_path / "mine"), "--sample", "hello", workspace=workspace)
    assert made.returncode == 0
    assert (tmp_path / "mine" / "agent.py").exists()
    again = run("new", str(tmp_path / "mine"), workspace=workspace)
    assert again.returncode == 2
    assert "not empty" in again.stderr


def test_environment_becomes_a_project_and_a_project_an_environment(
    tmp_path: Path, workspace: Path
) -> None:
    (tmp_path / "sums").mkdir()
    (tmp_path / "sums" / "sums.py").write_text("def load_environment():\n    ...\n")
    (tmp_path / "sums" / "pyproject.toml").write_text(
        '[project]\nname = "sums"\ndependencies = ["a-package-that-nobody-installs==1"]\n'
    )
    mine = str(tmp_path / "mine")
    wrong = run("new", mine, "--verifiers", str(tmp_path), "--arguments", "[]", workspace=workspace)
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "not an object" in wrong.stderr
    for _ in range(2):
        made = run("new", mine, "--verifiers", str(tmp_path / "sums"), workspace=workspace)
        assert made.returncode == 0
        assert f"atelier environments install {mine}" in made.stdout
    other = str(tmp_path / "other")
    assert run("new", other, "--sample", "hello", workspace=workspace).returncode == 0
    out = tmp_path / "package"
    done = run("export", other, "--environment", str(out), workspace=workspace)
    assert done.returncode == 0
    assert "vf-eval other-environment" in done.stdout
    assert (out / "other_environment" / "taskset.py").exists()
    again = run("export", mine, "--environment", str(tmp_path / "x"), workspace=workspace)
    assert again.returncode == 2
    assert "was made from an environment of verifiers" in again.stderr
    bare = run("export", other, "--format", "adapter", workspace=workspace)
    assert bare.returncode == 2
    assert "--out" in bare.stderr


def test_task_of_inspect_becomes_a_project(tmp_path: Path, workspace: Path) -> None:
    (tmp_path / "sums").mkdir()
    file = tmp_path / "sums" / "arithmetic.py"
    file.write_text("@task\ndef sums():\n    ...\n")
    file.with_name("requirements.txt").write_text("a-package-that-nobody-installs==1\n")
    mine = str(tmp_path / "mine")
    wrong = run("new", mine, "--inspect", f"{file}@products", workspace=workspace)
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "arithmetic.py has no task products. It has: sums." in wrong.stderr
    for _ in range(2):
        made = run("new", mine, "--inspect", str(file), workspace=workspace)
        assert made.returncode == 0
        assert f"atelier environments install {mine}" in made.stdout
    training = str(tmp_path / "mine" / "runs" / "none")
    logs = run("trajectories", training, "--inspect", str(tmp_path / "logs"), workspace=workspace)
    assert logs.returncode == 2
    assert not (tmp_path / "logs").exists()


def test_doctor_checks_the_model_of_a_project(workspace: Path, tiny_model: Path) -> None:
    project = make_project(workspace / "checked", tiny_model)
    done = run("doctor", str(project), workspace=workspace)
    assert "Chat format: " in done.stdout
