"""Project as an environment package: its files, dependencies, and what is refused."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from engine.integrations.verifiers.export import export_environment, module_name
from engine.protocol.problems import ConfigError
from engine.storage.project import edit_text, read_toml, write_toml
from engine.storage.samples import create_project

RUN = """
import asyncio, json, sys
sys.path.insert(0, sys.argv[1])
from my_agent_environment_host import AgentCode
code = AgentCode(sys.argv[2], "agent.py", "-", 10000)
code.load()
message = {"scenario": {"a": 2}, "base_url": "u/v1", "api_key": "k", "model": "m"}
print(json.dumps(asyncio.run(code.answer(message, ""))))
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "my-agent"
    create_project(folder, "hello")
    return folder


def settings(project: Path, values: dict[str, Any]) -> None:
    write_toml(project, edit_text(read_toml(project), values))


def test_package_has_project_scenarios_and_settings(project: Path, tmp_path: Path) -> None:
    (project / "rewards.py").write_text("def short(scenario, result):\n    return 1.0\n")
    (project / "runs").mkdir()
    (project / ".env").write_text("KEY=secret")
    settings(project, {"reward.weights": {"short": 0.5}, "reward.required": ["rules"]})
    out = tmp_path / "out"
    assert export_environment(project, out) == "my-agent-environment"
    package = out / "my_agent_environment"
    assert sorted(file.name for file in package.iterdir()) == [
        "__init__.py",
        "harness.py",
        "host_agent.py",
        "host_results.py",
        "project",
        "scenarios",
        "settings.json",
        "taskset.py",
    ]
    copied = {file.name for file in (package / "project").iterdir()}
    assert {"agent.py", "rewards.py", "project.toml"} <= copied
    assert not copied & {"runs", ".env", "scenarios"}
    kept = json.loads((package / "settings.json").read_text())
    assert kept["weights"] == {"short": 0.5}
    assert (kept["required"], kept["file"]) == (["rules"], "agent.py")
    lines = (package / "scenarios" / "train.jsonl").read_text().splitlines()
    assert set(json.loads(lines[0])) == {"id", "title", "data"}
    values = tomllib.loads((out / "pyproject.toml").read_text())
    assert values["project"]["dependencies"] == ["verifiers==0.4.0"]
    assert values["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"] == [package.name]
    assert "vf-eval my-agent-environment" in (out / "README.md").read_text()


def test_copied_host_runs_the_agent_without_atelier(project: Path, tmp_path: Path) -> None:
    (project / "agent.py").write_text(
        "async def rollout(scenario, model):\n"
        "    return {'rewards': {'a': scenario['a']}, 'metrics': {'n': 1}}\n"
    )
    (project / "rewards.py").write_text("def b(scenario, result):\n    return 3.0\n")
    export_environment(project, tmp_path / "out")
    package = tmp_path / "out" / "my_agent_environment"
    lean = tmp_path / "lean" / "my_agent_environment_host"
    lean.mkdir(parents=True)
    (lean / "__init__.py").write_text((package / "host_agent.py").read_text())
    (lean / "host_results.py").write_text((package / "host_results.py").read_text())
    done = subprocess.run(
        [sys.executable, "-I", "-c", RUN, str(lean.parent), str(package / "project")],
        capture_output=True,
        text=True,
        check=True,
    )
    kind, value = json.loads(done.stdout)
    assert (kind, value["parts"], value["metrics"]) == ("ok", {"a": 2.0, "b": 3.0}, {"n": 1.0})


def test_dependencies_leave_out_pins_of_a_lock(project: Path, tmp_path: Path) -> None:
    settings(project, {"agent.requirements": "requirements.txt"})
    for text, expected in (
        ("numpy==2.0 \\\n    --hash=sha256:00\nhttpx==0.28 --hash=sha256:11\n", ["numpy", "httpx"]),
        ("# why\nnumpy>=1  # fast\n-r other.txt\nverifiers==0.3.1\n", ["numpy>=1"]),
    ):
        (project / "requirements.txt").write_text(text)
        out = tmp_path / f"out-{len(text)}"
        export_environment(project, out)
        values = tomllib.loads((out / "pyproject.toml").read_text())
        assert values["project"]["dependencies"] == ["verifiers==0.4.0", *expected]
    (project / "requirements.in").write_text("scipy>=1\n")
    export_environment(project, tmp_path / "last")
    values = tomllib.loads((tmp_path / "last" / "pyproject.toml").read_text())
    assert values["project"]["dependencies"] == ["verifiers==0.4.0", "scipy>=1"]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (
            {"judge.enabled": True, "judge.models": ["openai/x"]},
            "compares the trajectories of a group",
        ),
        ({"agent.source": "outside"}, "An external script makes the rollouts"),
    ],
)
def test_reward_that_cannot_be_expressed_is_refused(
    project: Path, tmp_path: Path, values: dict[str, Any], words: str
) -> None:
    settings(project, values)
    with pytest.raises(ConfigError, match=words):
        export_environment(project, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_link_to_a_place_outside_is_refused(project: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s")
    (project / "data").symlink_to(tmp_path / "secret")
    with pytest.raises(ConfigError, match="data is a link to a place outside the project"):
        export_environment(project, tmp_path / "out")


def test_full_folder_and_own_environments_are_refused(project: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="exists and is not empty"):
        export_environment(project, project)
    (project / "environment.json").write_text("{}")
    with pytest.raises(ConfigError, match="was made from an environment of verifiers"):
        export_environment(project, tmp_path / "out")


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("My Agent", "my_agent_environment"),
        ("2048", "project_2048_environment"),
        ("é", "project__environment"),
    ],
)
def test_module_name_is_an_identifier(name: str, module: str) -> None:
    assert module_name(name) == module
    assert module.isidentifier()
