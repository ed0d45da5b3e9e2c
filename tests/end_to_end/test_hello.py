"""Quickstart of the README: a real language model learns from its rewards on this machine."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine.models.registry import problem_of
from engine.protocol.events.run import RunFinished, StepFinished, decode

ROOT = Path(__file__).parents[2]
STARTER = "smollm2-135m-instruct"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_hello_learns(tmp_path: Path) -> None:
    assert problem_of(STARTER) is None, "run `atelier models pull` first"
    environment = {
        **os.environ,
        "ATELIER_WORKSPACE": str(tmp_path),
        "XDG_RUNTIME_DIR": str(tmp_path),
        "XDG_STATE_HOME": str(tmp_path / "state"),
    }

    def engine(*arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "engine", *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, cwd=ROOT, env=environment, check=False
        )

    project = tmp_path / "hello"
    assert engine("new", str(project), "--sample", "hello").returncode == 0
    steps, reached = (15, 0.6) if os.environ.get("ATELIER_LONG") else (8, 0.35)
    done = engine("train", str(project), "--steps", str(steps), "--json")
    events = [decode(line) for line in done.stdout.splitlines()]
    last = events[-1]
    assert isinstance(last, RunFinished), done.stderr
    rewards = [e.metrics["reward/mean"] for e in events if isinstance(e, StepFinished)]
    assert len(rewards) == steps
    assert rewards[0] < 0.15
    assert max(rewards) >= reached
    assert last.validation is not None
    assert last.baseline is not None
    assert last.validation.low > last.baseline.high
