"""Lookup of runs by typed names: name, id or its end, folder, and RUN@STEP."""

from pathlib import Path

import pytest

from engine.cli.run_lookup import find_run_and_step, find_run_folder, reading
from engine.protocol.problems import AtelierError, ConfigError
from engine.protocol.records.runs import RunSpec
from engine.storage.samples import create_project
from tests.engine.storage.kept_runs import make_run


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Workspace folder; the current folder is outside of it."""
    workspace_, current_folder = tmp_path / "workspace", tmp_path / "here"
    workspace_.mkdir()
    current_folder.mkdir()
    monkeypatch.setenv("ATELIER_WORKSPACE", str(workspace_))
    monkeypatch.chdir(current_folder)
    return workspace_


def make_trained_run(project: Path, name: str) -> RunSpec:
    if not project.exists():
        create_project(project, "hello")
    return make_run(project, name, {1: 0.2, 2: 0.9, 3: 0.4})


def test_run_is_found_by_name_id_end_of_id_and_folder(workspace: Path) -> None:
    spec = make_trained_run(workspace / "p", "calm-fox")
    folder = workspace / "p" / "runs" / spec.id
    for name in ("calm-fox", spec.id, spec.id[-6:], spec.id[-6:].lower(), str(folder)):
        assert find_run_folder(name) == folder
    with reading("calm-fox") as reader:
        assert [one.step for one in reader.checkpoints()] == [1, 2, 3]


def test_projects_in_and_above_the_current_folder_are_searched(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    current_folder = Path.cwd()
    spec = make_trained_run(current_folder / "mine", "calm-fox")
    folder = current_folder / "mine" / "runs" / spec.id
    assert find_run_folder("calm-fox") == folder
    monkeypatch.chdir(current_folder / "mine" / "scenarios")
    assert find_run_folder("calm-fox") == folder


def test_checkpoint_is_found_by_step_best_and_newest(workspace: Path) -> None:
    spec = make_trained_run(workspace / "p", "calm-fox")
    folder = workspace / "p" / "runs" / spec.id
    for suffix, step in (("@2", 2), ("@best", 2), ("@newest", 3), ("", None)):
        for name in ("calm-fox", str(folder)):
            assert find_run_and_step(name + suffix) == (folder, step)
    with pytest.raises(ConfigError, match="This run has checkpoints of these steps: 1, 2, 3"):
        find_run_and_step("calm-fox@9")


def test_folder_with_an_at_sign_is_not_split(tmp_path: Path) -> None:
    folder = tmp_path / "a@3"
    folder.mkdir()
    assert find_run_and_step(str(folder)) == (folder, None)


def test_unknown_and_ambiguous_names_give_a_hint(workspace: Path) -> None:
    first, second = (
        make_trained_run(workspace / "p", "calm-fox"),
        make_trained_run(workspace / "q", "calm-fox"),
    )
    with pytest.raises(AtelierError) as raised:
        find_run_folder("calm-fox")
    assert raised.value.problem.code == "run.ambiguous"
    assert first.id[-8:] in str(raised.value)
    assert second.id[-8:] in str(raised.value)
    with pytest.raises(AtelierError, match="atelier runs PROJECT"):
        find_run_folder("wild-hare")
    with pytest.raises(AtelierError, match="no run folder"):
        find_run_folder("./gone")
