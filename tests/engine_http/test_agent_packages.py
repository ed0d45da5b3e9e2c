"""Agent packages: required before training, installed on request, used by the run."""

from pathlib import Path

import pytest

from engine.protocol.problems import Refused
from engine.protocol.records.machine.environments import EnvironmentView
from engine.protocol.requests.runs import TrajectoryQuery
from tests.engine_http.conftest import Engine, make_project, until
from tests.support.tiny_environments import make_wheel

AGENT = """
import json, sys, urllib.request
import tiny_tools

def rollout(scenario, model):
    body = {"model": model.name, "messages": [{"role": "user", "content": scenario["q"]}]}
    request = urllib.request.Request(
        model.base_url + "/chat/completions", json.dumps(body).encode(),
        {"Authorization": "Bearer " + model.api_key, "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as answer:
        reply = json.load(answer)["choices"][0]["message"]["content"]
    print(sys.prefix)
    return {"reward": len(reply) / 8, "metrics": {"tools": tiny_tools.COUNT}}
"""
COMMAND = 'command = "python agent.py"\n'
BY_COMMAND = """
import json, sys, tiny_tools
print(sys.prefix)
print(json.dumps({"reward": 1.0, "metrics": {"tools": tiny_tools.COUNT}}))
"""


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    folder = tmp_path / "wheels"
    folder.mkdir()
    make_wheel(folder, "tiny-tools", {"tiny_tools.py": "COUNT = 3\n"})
    return folder


def with_requirements(project: Path, requirements: str, more: str = "") -> Path:
    (project / "requirements.txt").write_text(requirements)
    toml = (project / "project.toml").read_text()
    section = f'[agent]\nrequirements = "requirements.txt"\n{more}'
    (project / "project.toml").write_text(toml.replace("[agent]\n", section))
    return project


def packages_of(engine: Engine, project: Path) -> EnvironmentView:
    environment = engine.call(lambda client: client.packages(str(project)))
    assert environment is not None
    return environment


@pytest.mark.parametrize("command", [False, True])
def test_packages_are_installed_only_on_request(
    engine: Engine, workspace: Path, tiny_model: Path, wheels: Path, command: bool
) -> None:
    made = make_project(workspace / "asks", tiny_model, BY_COMMAND if command else AGENT)
    lines = f"--no-index\n--find-links {wheels}\n# {command}\ntiny-tools\n"
    project = with_requirements(made, lines, COMMAND if command else "")
    assert (packages_of(engine, project).state, packages_of(engine, project).packages) == (
        "absent",
        1,
    )
    with pytest.raises(Refused, match=r"not installed \(requirements.txt\)") as refused:
        engine.train(project)
    assert f"environments install {project}" in refused.value.problem.hint
    assert not list(project.glob("runs/*"))

    engine.call(lambda client: client.act_on_packages(str(project), "install"))
    until(lambda: packages_of(engine, project).action is None)
    ready = packages_of(engine, project)
    assert (ready.state, ready.problem, ready.packages) == ("ready", None, 1)

    run = engine.train(project, **{"train.steps": 1, "train.validate_every": 0})
    engine.wait(run)
    page = engine.call(lambda client: client.trajectories(run.id, TrajectoryQuery(split="train")))
    one = engine.call(lambda client: client.trajectory(run.id, page.items[0].id))
    assert one.metrics["tools"] == 3
    assert one.output.strip().startswith(ready.home)


def test_failed_installation_reports_the_package(
    engine: Engine, workspace: Path, tiny_model: Path, wheels: Path
) -> None:
    project = with_requirements(
        make_project(workspace / "asks", tiny_model),
        f"--no-index\n--find-links {wheels}\nlang-graf\n",
    )
    engine.call(lambda client: client.act_on_packages(str(project), "install"))
    until(lambda: packages_of(engine, project).action is None)
    problem = packages_of(engine, project).problem
    assert problem is not None
    assert "lang-graf" in problem.message


def test_missing_requirements_file_is_a_project_problem(
    engine: Engine, workspace: Path, tiny_model: Path
) -> None:
    project = with_requirements(make_project(workspace / "asks", tiny_model), "tiny-tools\n")
    (project / "requirements.txt").unlink()
    view = engine.call(lambda client: client.project(str(project)))
    assert [problem.code for problem in view.problems] == ["agent.requirements_missing"]


def test_agent_without_requirements_has_no_environment(engine: Engine, project: Path) -> None:
    assert engine.call(lambda client: client.packages(str(project))) is None
