"""Routes of projects from environments of verifiers and tasks of Inspect, over a real engine;
nothing is installed."""

from pathlib import Path

import pytest

from engine.protocol.problems import Refused
from engine.protocol.requests.drafts import BeginEnvironment, ReadEnvironment
from tests.engine_http.conftest import Engine

PYPROJECT = '[project]\nname = "sums"\ndependencies = ["a-package-that-nobody-installs==1"]\n'


def test_project_is_created_and_waits_for_packages(engine: Engine, workspace: Path) -> None:
    source, folder = workspace / "source", workspace / "sums-project"
    source.mkdir()
    (source / "sums.py").write_text("def load_environment(n=1):\n    ...\n")
    (source / "pyproject.toml").write_text(PYPROJECT)
    request = BeginEnvironment(folder=str(folder), name=str(source), arguments={"n": 3})
    view = engine.call(lambda client: client.begin_environment(request))
    assert (view.path, view.name, view.trusted) == (str(folder), "sums", True)
    assert [one.count for one in view.splits] == [0, 0]
    assert view.config is not None
    assert view.config.agent.requirements == "requirements.txt"
    read = ReadEnvironment(folder=str(folder))
    with pytest.raises(Refused, match="packages that are not installed"):
        engine.call(lambda client: client.read_environment(read))
    unknown = BeginEnvironment(folder=str(workspace / "other"), name="owner/sums")
    with pytest.raises(Refused, match="Environments Hub"):
        engine.call(lambda client: client.begin_environment(unknown))
    assert not (workspace / "other").exists()
    assert "textarena" in engine.call(lambda client: client.environment_names()).names


def test_task_of_inspect_is_created_and_waits_for_packages(engine: Engine, workspace: Path) -> None:
    source, folder = workspace / "source", workspace / "sums"
    source.mkdir()
    (source / "arithmetic.py").write_text("@task\ndef sums(n=1):\n    ...\n")
    (source / "requirements.txt").write_text("a-package-that-nobody-installs==1\n")
    task = f"{source / 'arithmetic.py'}@sums"
    request = BeginEnvironment(library="inspect", folder=str(folder), name=task)
    view = engine.call(lambda client: client.begin_environment(request))
    assert (view.path, view.name, view.trusted) == (str(folder), "sums", True)
    read = ReadEnvironment(folder=str(folder))
    with pytest.raises(Refused, match="packages that are not installed"):
        engine.call(lambda client: client.read_environment(read))
    unknown = BeginEnvironment(library="inspect", folder=str(workspace / "other"), name="sums")
    with pytest.raises(Refused, match="does not name a task of Inspect"):
        engine.call(lambda client: client.begin_environment(unknown))
    assert not (workspace / "other").exists()
