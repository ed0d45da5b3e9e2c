"""Project of an environment that is a folder: its files, its continuation, and what is refused."""

import json
import tomllib
from pathlib import Path

import pytest

from engine.integrations.packaged_tasks.project import parse_arguments, read_settings
from engine.integrations.verifiers.creation import begin_environment
from engine.integrations.verifiers.installed import names_in
from engine.integrations.verifiers.sources import find_source
from engine.protocol.problems import ConfigError
from engine.storage.project import load_config
from engine.trust.projects import is_trusted

CODE = "import verifiers as vf\n\ndef load_environment(n=1):\n    return vf.SingleTurnEnv()\n"
PYPROJECT = """
[project]
name = "sums"
dependencies = ["verifiers>=0.1.9", "numpy>=1", "verifiers-extras"]
"""


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    (folder / "__pycache__").mkdir(parents=True)
    (folder / "sums.py").write_text(CODE)
    (folder / "pyproject.toml").write_text(PYPROJECT)
    return folder


def test_folder_becomes_a_project(environment: Path, tmp_path: Path) -> None:
    project = tmp_path / "project"
    begin_environment(project, str(environment), {"n": 3})
    assert is_trusted(project)
    assert sorted(file.name for file in project.iterdir()) == [
        "agent.py",
        "environment",
        "environment.json",
        "project.toml",
        "requirements.txt",
    ]
    assert (project / "environment" / "sums.py").read_text() == CODE
    assert not (project / "environment" / "__pycache__").exists()
    lines = (project / "requirements.txt").read_text().splitlines()
    assert lines == ["verifiers>=0.1.14,<0.4", "numpy>=1", "verifiers-extras"]
    settings = read_settings(project)
    assert (settings["module"], settings["kind"]) == ("sums", "environment")
    assert settings["arguments"] == {"n": 3}
    agent = load_config(project).agent
    assert (agent.requirements, agent.timeout_s) == ("requirements.txt", 600)
    assert tomllib.loads((project / "project.toml").read_text())["name"] == "sums"


@pytest.mark.parametrize(("name", "needs_servers"), [("textarena", False), ("openenv", True)])
def test_task_sets_of_the_library_say_whether_they_need_servers(
    tmp_path: Path, name: str, needs_servers: bool
) -> None:
    begin_environment(tmp_path / "project", name, {})
    settings = read_settings(tmp_path / "project")
    assert (settings["kind"], settings["needs_servers"]) == ("taskset", needs_servers)


def test_unfinished_project_takes_new_arguments(environment: Path, tmp_path: Path) -> None:
    project = tmp_path / "project"
    begin_environment(project, str(environment), {"n": 3})
    begin_environment(project, str(environment), {"n": 4})
    assert read_settings(project)["arguments"] == {"n": 4}
    with pytest.raises(ConfigError, match="exists and is not empty"):
        begin_environment(project, "textarena", {})
    (project / "scenarios").mkdir()
    (project / "scenarios" / "train.jsonl").write_text("{}\n")
    with pytest.raises(ConfigError, match="exists and is not empty"):
        begin_environment(project, str(environment), {"n": 5})
    assert read_settings(project)["arguments"] == {"n": 4}


def test_folder_with_files_is_refused_and_kept(environment: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="exists and is not empty"):
        begin_environment(environment, "textarena", {})
    assert (environment / "sums.py").read_text() == CODE


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("owner/sums", "is a name of the Environments Hub"),
        ("--index-url=x", "is not the name of a package"),
        ("", "is not the name of a package"),
        ("a b", "is not the name of a package"),
        ("./nothing-here", "There is no folder"),
    ],
)
def test_wrong_name_is_refused_before_anything_is_written(
    name: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as error:
        begin_environment(tmp_path / "project", name, {})
    assert words in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_broken_pyproject_is_refused(environment: Path) -> None:
    for text in ("[project", "project = 3", '[project]\ndependencies = "numpy"'):
        (environment / "pyproject.toml").write_text(text)
        with pytest.raises(ConfigError, match=r"pyproject\.toml"):
            find_source(str(environment))


def test_task_set_of_the_library_needs_no_download() -> None:
    source = find_source("textarena")
    assert source.requirements == ["verifiers[ta]==0.4.0"]
    assert tuple(source.module) == ("textarena", "taskset")
    assert find_source("nemo-gym").requirements == ["verifiers==0.4.0"]


@pytest.mark.parametrize(
    ("text", "values"), [("", {}), ("  ", {}), ('{"a": [1, null]}', {"a": [1, None]})]
)
def test_arguments_are_an_object(text: str, values: dict[str, object]) -> None:
    assert parse_arguments(text) == values


@pytest.mark.parametrize("text", ["[1]", "{", "3", '{"a": NaN}', '{"a": 1, "a": 2}'])
def test_other_arguments_are_refused(text: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_arguments(text)
    assert error.value.problem.where == "arguments"


def test_damaged_settings_are_refused(tmp_path: Path) -> None:
    for text in ("{", "[]", '{"arguments": []}'):
        (tmp_path / "environment.json").write_text(text)
        with pytest.raises(ConfigError, match=r"environment\.json"):
            read_settings(tmp_path)


def test_packages_that_need_the_library_are_listed(tmp_path: Path) -> None:
    packages = tmp_path / "lib" / "python3.11" / "site-packages"
    for name, needs in (("sums", "verifiers>=0.1"), ("other", "verifiers-extras"), ("b", "numpy")):
        folder = packages / f"{name}-1.dist-info"
        folder.mkdir(parents=True)
        text = f"Metadata-Version: 2.1\nName: {name}\nRequires-Dist: {needs}\n\nRequires-Dist: x\n"
        (folder / "METADATA").write_text(text)
    assert names_in(tmp_path) == {"sums"}


def test_settings_are_json(environment: Path, tmp_path: Path) -> None:
    begin_environment(tmp_path / "project", str(environment), {})
    values = json.loads((tmp_path / "project" / "environment.json").read_text())
    assert sorted(values) == ["arguments", "kind", "module", "name", "needs_servers"]
