"""Project of a task in a file: its files, its continuation, and what is refused."""

import json
from pathlib import Path

import pytest

from engine.integrations.inspect import creation
from engine.integrations.inspect.creation import begin_task, is_task
from engine.integrations.packaged_tasks.project import read_settings
from engine.protocol.problems import ConfigError
from engine.storage.project import load_config
from engine.trust.projects import is_trusted

CODE = """
import inspect_ai
from inspect_ai import Task, task

@task
def sums(count=1):
    return Task()

@inspect_ai.task(name="other")
def products():
    return Task()

def no_task():
    return Task()
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    (folder / "logs").mkdir(parents=True)
    (folder / "arithmetic.py").write_text(CODE)
    (folder / "data.json").write_text("[]")
    (folder / ".env").write_text("OPENAI_API_KEY=secret")
    (folder / "requirements.txt").write_text("inspect_ai>=0.3\n\nopenai\nnumpy>=1\nopenai-extras\n")
    return folder / "arithmetic.py"


def test_task_becomes_a_project(file: Path, tmp_path: Path) -> None:
    project = tmp_path / "project"
    begin_task(project, f"{file}@sums", {"count": 3})
    assert is_trusted(project)
    assert is_task(project)
    assert sorted(one.name for one in project.iterdir()) == [
        "agent.py",
        "environment",
        "environment.json",
        "project.toml",
        "requirements.txt",
    ]
    copied = sorted(one.name for one in (project / "environment").iterdir())
    assert copied == ["arithmetic.py", "data.json", "requirements.txt"]
    lines = (project / "requirements.txt").read_text().splitlines()
    assert lines == ["inspect-ai==0.3.285", "openai>=2", "numpy>=1", "openai-extras"]
    settings = read_settings(project)
    assert (settings["module"], settings["task"]) == ("arithmetic", "sums")
    assert (settings["registered"], settings["arguments"]) == (False, {"count": 3})
    assert load_config(project).agent.requirements == "requirements.txt"


def test_unfinished_project_takes_new_arguments(file: Path, tmp_path: Path) -> None:
    project = tmp_path / "project"
    begin_task(project, f"{file}@sums", {"count": 3})
    begin_task(project, f"{file}@sums", {"count": 4})
    assert read_settings(project)["arguments"] == {"count": 4}
    with pytest.raises(ConfigError, match="exists and is not empty"):
        begin_task(project, f"{file}@products", {})


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("{file}@no_task", "arithmetic.py has no task no_task. It has: sums, products."),
        ("{file}", "arithmetic.py has 2 tasks. It has: sums, products."),
        ("{file}x.py", "There is no file"),
        ("rm -rf", "rm -rf does not name a task of Inspect."),
        ("", "An empty text does not name a task"),
    ],
)
def test_name_without_a_task_is_refused(file: Path, tmp_path: Path, name: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        begin_task(tmp_path / "project", name.format(file=file), {})
    assert caught.value.problem.message.startswith(words)
    assert not (tmp_path / "project").exists()


def test_single_task_needs_no_name(file: Path, tmp_path: Path) -> None:
    file.write_text(CODE.replace('@inspect_ai.task(name="other")\n', ""))
    begin_task(tmp_path / "project", str(file), {})
    assert read_settings(tmp_path / "project")["task"] == "sums"


def test_file_that_cannot_be_imported_is_refused(file: Path, tmp_path: Path) -> None:
    other = file.rename(file.with_name("my-task.py"))
    with pytest.raises(ConfigError, match="no Python identifier"):
        begin_task(tmp_path / "project", str(other), {})


def test_folder_with_too_many_files_is_refused(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(creation, "MOST_FILES", 2)
    with pytest.raises(ConfigError, match="has more than 2 files"):
        begin_task(tmp_path / "project", f"{file}@sums", {})
    assert not (tmp_path / "project").exists()


def test_models_of_roles_must_be_an_object(file: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="model_roles is not an object"):
        begin_task(tmp_path / "project", f"{file}@sums", {"model_roles": "openai/gpt-5.4"})


def test_settings_of_another_project_are_no_task(tmp_path: Path) -> None:
    (tmp_path / "environment.json").write_text(json.dumps({"kind": "taskset", "arguments": {}}))
    assert not is_task(tmp_path)
