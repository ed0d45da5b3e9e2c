"""Agents of other frameworks, as shown on the help page: two training steps of a real model, with
the sampler's tokens and log-probs in the trainer."""

import json
from pathlib import Path

import pytest

from engine.protocol.events.run import RunFinished, StepFinished
from engine.protocol.requests.runs import TrajectoryQuery
from tests.agents import COMMAND, FRAMEWORKS, REQUIREMENTS, agents_python, example
from tests.engine_http.conftest import Engine, make_project

pytestmark = pytest.mark.long


@pytest.fixture(scope="module", autouse=True)
def installed_packages(real_cache: None) -> None:
    agents_python()


def prepare_project(project: Path, title: str) -> Path:
    scenarios = [{"id": f"s{n}", "question": f"Where is {n}?", "answer": "Z"} for n in range(4)]
    lines = "".join(json.dumps(one) + "\n" for one in scenarios)
    (project / "scenarios" / "train.jsonl").write_text(lines)
    toml = (project / "project.toml").read_text()
    if title == COMMAND:
        (project / "agent.sh").write_text(example(title))
        line = 'command = "sh agent.sh"'
    else:
        (project / "agent.py").write_text(example(title))
        (project / "requirements.txt").write_bytes(REQUIREMENTS.read_bytes())
        line = 'requirements = "requirements.txt"'
    toml = toml.replace("[agent]\n", f'[scenarios]\nvalidation = ""\n\n[agent]\n{line}\n')
    toml = toml.replace("max_context = 200", "max_context = 800").replace("steps = 3", "steps = 2")
    toml = toml.replace("max_tokens = 8", "max_tokens = 200")
    (project / "project.toml").write_text(toml)
    return project


@pytest.mark.parametrize("title", [*FRAMEWORKS, COMMAND])
def test_example_agent_trains_unchanged(
    engine: Engine, workspace: Path, tiny_model: Path, title: str
) -> None:
    project = prepare_project(make_project(workspace / "field", tiny_model), title)
    run = engine.train(project)
    events = engine.wait(run)
    assert isinstance(events[-1], RunFinished), events[-1]
    steps = [event for event in events if isinstance(event, StepFinished)]
    assert len(steps) == 2
    gaps = [step.metrics["logprob_gap/max"] for step in steps if "loss" in step.metrics]
    assert max(gaps) <= 1e-4
    page = engine.call(lambda client: client.trajectories(run.id, TrajectoryQuery()))
    assert page.total == 16
    whole = [
        engine.call(lambda client, name=row.id: client.trajectory(run.id, name))
        for row in page.items
    ]
    cut = title == "OpenAI Agents SDK"  # raises if a response is truncated at train.max_tokens
    assert [one.problem for one in whole if one.problem and not (cut and one.truncated)] == []
    assert all(len(one.branches) == 1 and one.branches[0].sampled > 0 for one in whole)
