"""Runs of a real engine whose agents are sandboxed: training, evaluation, refusals."""

from pathlib import Path
from typing import Any

import pytest

from engine.client import EngineClient
from engine.protocol.config.agent import AgentConfig
from engine.protocol.events.run import RunFinished, StepFinished
from engine.protocol.problems import ConfigError
from engine.protocol.requests.runs import StartEvaluation, TrajectoryQuery
from engine.rollout.sandbox import machine
from engine.storage.project import load_config
from engine.trust.projects import is_trusted
from engine.trust.store import edit_record
from tests.engine_http.conftest import Engine, make_project
from tests.support.engine_starter import run_command
from tests.support.namespaces import needs_namespaces

AGENT = """
import os, subprocess
import openai

async def rollout(scenario, model):
    client = openai.AsyncOpenAI(base_url=model.base_url, api_key=model.api_key)
    answer = await client.chat.completions.create(
        model=model.name, messages=[{"role": "user", "content": str(scenario)}]
    )
    text = answer.choices[0].message.content
    subprocess.run(["tee", "answer.txt"], input=text.encode(), cwd=model.scratch, check=True)
    subprocess.Popen(["sleep", "600"], start_new_session=True)
    return {"metrics": {"chars": len(text), "files": len(os.listdir("."))}}
"""
REWARDS = """
def length(scenario, result, scratch):
    with open(scratch + "/answer.txt") as file:
        return len(file.read()) / 100
"""


@pytest.fixture
def project(workspace: Path, tiny_model: Path) -> Path:
    folder = make_project(workspace / "boxed", tiny_model, AGENT)
    (folder / "rewards.py").write_text(REWARDS)
    return folder


@needs_namespaces
def test_sandboxed_agent_trains_and_is_evaluated(engine: Engine, project: Path) -> None:
    values = {"agent.sandbox": "process", "train.steps": 2, "train.validate_every": 0}
    run = engine.train(project, **values)
    events = engine.wait(run)
    assert isinstance(events[-1], RunFinished)
    steps = [one for one in events if isinstance(one, StepFinished)]
    assert [one.metrics["unscored"] for one in steps] == [0, 0]
    assert max(one.metrics["logprob_gap/max"] for one in steps) < 1e-4

    async def read(client: EngineClient, run_id: str) -> list[Any]:
        page = await client.trajectories(run_id, TrajectoryQuery())
        return [await client.trajectory(run_id, row.id) for row in page.items]

    for trajectory in engine.call(lambda client: read(client, run.id)):
        assert trajectory.parts.keys() == {"length"}
        assert trajectory.reward == pytest.approx(trajectory.metrics["chars"] / 100)
        assert trajectory.output.endswith("sandbox: ended what the agent left running: sleep\n")

    request = StartEvaluation(
        project=str(project), models=["base"], scenarios="train", overrides=values, judge=False
    )
    evaluation = engine.call(lambda client: client.start_evaluation(request))
    assert isinstance(engine.wait(evaluation)[-1], RunFinished)
    for trajectory in engine.call(lambda client: read(client, evaluation.id)):
        assert trajectory.parts.keys() == {"length"}


def test_machine_without_sandbox_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(machine, "trial_problem", lambda: "user namespaces are not allowed")
    with pytest.raises(ConfigError, match="offers no sandbox: user namespaces are not allowed"):
        machine.require_sandbox(AgentConfig(sandbox="process"))
    assert machine.sandbox_check().state == "warn"


@needs_namespaces
def test_project_is_trusted_in_a_sandbox_by_command(tmp_path: Path, tiny_model: Path) -> None:
    project = make_project(tmp_path / "theirs", tiny_model)
    with edit_record() as record:
        record.folders.pop(str(project.resolve()), None)
    done = run_command("trust", "--sandbox", str(project))
    assert "its agent may run in a sandbox" in done.stdout
    assert is_trusted(project)
    assert load_config(project).agent.sandbox == "process"
