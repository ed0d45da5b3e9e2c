"""Agents made for Anthropic's API, unmodified, train two steps of a real model: the official client
and the harnesses mini-SWE-agent and smolagents."""

import json
import shutil
from pathlib import Path

import pytest

from engine.protocol.events.run import RunFinished, StepFinished
from engine.protocol.records.runs import Trajectory
from engine.protocol.requests.runs import TrajectoryQuery
from tests.agents import HARNESSES, coding_agent_command, example, harness_python
from tests.engine_http.conftest import Engine, make_project

AGENT = """
import anthropic

async def rollout(scenario, model):
    url = model.base_url.removesuffix("/v1")
    async with anthropic.AsyncAnthropic(base_url=url, api_key=model.api_key) as client:
        messages = [{"role": "user", "content": scenario["q"]}]
        for _ in range(2):
            stream = client.messages.stream(model=model.name, max_tokens=100, messages=messages)
            async with stream as opened:
                reply = await opened.get_final_message()
            messages.append({"role": "assistant", "content": reply.content})
            messages.append({"role": "user", "content": "And then?"})
    text = "".join(block.text for block in reply.content)
    return {"reward": sum(c.isalpha() for c in text) / 8}
"""


def check_two_steps(engine: Engine, project: Path, timeout_s: float) -> list[Trajectory]:
    """Train, and return the trajectories of two steps whose sampler and trainer agree."""
    run = engine.train(project)
    events = engine.wait(run, timeout_s)
    assert isinstance(events[-1], RunFinished), events[-1]
    steps = [event.metrics for event in events if isinstance(event, StepFinished)]
    assert len(steps) == 2
    assert max(metrics["logprob_gap/max"] for metrics in steps) <= 1e-4
    assert all(metrics["grad_norm"] > 0 for metrics in steps)
    page = engine.call(lambda client: client.trajectories(run.id, TrajectoryQuery()))
    assert page.total == 16
    return [
        engine.call(lambda client, name=row.id: client.trajectory(run.id, name))
        for row in page.items
    ]


def change(project: Path, **values: str) -> None:
    """Replace lines of the project file by their beginnings, and leave out the validation."""
    lines = (project / "project.toml").read_text().splitlines()
    changed = [
        f"{name} = {values[name]}" if (name := line.partition(" = ")[0]) in values else line
        for line in lines
    ]
    text = "\n".join(changed).replace("[agent]\n", '[scenarios]\nvalidation = ""\n\n[agent]\n')
    (project / "project.toml").write_text(text + "\n")


def roomy(model: Path, folder: Path) -> Path:
    """Return a copy of a model that reads 32,768 tokens."""
    copy = shutil.copytree(model, folder / "model")
    config = json.loads((copy / "config.json").read_text())
    config["max_position_embeddings"] = 32_768
    (copy / "config.json").write_text(json.dumps(config))
    return Path(copy)


def write_questions(project: Path) -> None:
    lines = [json.dumps({"id": f"s{n}", "question": f"Print {n}."}) for n in range(4)]
    (project / "scenarios" / "train.jsonl").write_text("\n".join(lines) + "\n")


def test_anthropic_client_trains_unmodified(
    engine: Engine, workspace: Path, tiny_model: Path
) -> None:
    project = make_project(workspace / "letters", tiny_model, AGENT)
    change(project, steps="2", max_context="400")
    for trajectory in check_two_steps(engine, project, 120):
        assert trajectory.problem is None
        (branch,) = trajectory.branches
        assert len(branch.spans) == 2


@pytest.mark.long
@pytest.mark.timeout(900)
def test_coding_agent_trains_unmodified(
    real_cache: None, engine: Engine, workspace: Path, tiny_model: Path
) -> None:
    """The random model writes no tool calls, so each rollout ends after the agent's three format
    errors; the reward is the share of letters in what it wrote."""
    project = make_project(workspace / "coding", roomy(tiny_model, workspace))
    write_questions(project)
    command = json.dumps(coding_agent_command("anthropic/policy"))
    change(project, steps="2", max_context="12000", max_tokens="40",
           timeout_s=f"300\ncommand = {command}")  # fmt: skip
    trajectories = check_two_steps(engine, project, 800)
    for trajectory in trajectories:
        assert trajectory.problem is None
        assert trajectory.metrics["calls"] == 3
        assert len(trajectory.branches) == 3
    assert len({trajectory.reward for trajectory in trajectories}) > 4


@pytest.mark.long
@pytest.mark.timeout(900)
def test_code_agent_trains_unmodified(
    real_cache: None, engine: Engine, workspace: Path, tiny_model: Path
) -> None:
    """The random model writes no code, so smolagents asks four times, and once for a last answer
    with other messages: a side call, which the project ignores. The reward is the share of letters
    in that answer."""
    project = make_project(workspace / "code", roomy(tiny_model, workspace))
    score = "sum(c.isalpha() for c in str(answer)) / 40"
    agent = example("smolagents", HARNESSES).replace('scenario["answer"] in str(answer)', score)
    (project / "agent.py").write_text(agent)
    write_questions(project)
    change(project, steps="2", max_context="30000", max_tokens="40",
           timeout_s=f'300\npython = "{harness_python("smolagents")}"')  # fmt: skip
    with (project / "project.toml").open("a") as file:
        file.write('\n[agent.conversations]\nothers = "ignore"\n')
    for trajectory in check_two_steps(engine, project, 800):
        assert trajectory.problem is None
        main, last = trajectory.conversations
        assert (main.name, main.answers, main.trained) == ("main", 4, True)
        assert (last.name, last.answers, last.trained) == ("other", 1, False)
        assert {branch.conversation for branch in trajectory.trained_branches} == {0}
