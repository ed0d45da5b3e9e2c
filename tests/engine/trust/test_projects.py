"""Trusted projects and runs."""

import shutil
from pathlib import Path

import pytest

from engine.protocol.problems import Refused
from engine.storage.samples import create_project
from engine.trust.projects import is_trusted, require_run_trust, require_trust, trust_project
from engine.trust.store import trust_folder


@pytest.fixture(autouse=True)
def empty_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def untrusted_project(folder: Path) -> Path:
    (folder / "runs" / "R1").mkdir(parents=True)
    (folder / "project.toml").write_text("")
    (folder / "runs" / "R1" / "run.json").write_text('{"id": "R1"}')
    return folder


def test_created_project_is_trusted(tmp_path: Path) -> None:
    create_project(tmp_path / "mine", "hello")
    assert is_trusted(tmp_path / "mine")


def test_found_project_is_untrusted_until_confirmed(tmp_path: Path) -> None:
    project = untrusted_project(tmp_path / "theirs")
    with pytest.raises(Refused) as error:
        require_trust(project)
    assert error.value.problem.code == "project.untrusted"
    assert str(project) in error.value.problem.hint
    trust_project(project)
    require_trust(project)
    require_run_trust(project / "runs" / "R1")


def test_replaced_folder_is_not_trusted(tmp_path: Path) -> None:
    project = untrusted_project(tmp_path / "one")
    other = untrusted_project(tmp_path / "other")
    trust_project(project)
    shutil.rmtree(project)
    other.rename(project)
    assert not is_trusted(project)


def test_copied_project_is_not_trusted(tmp_path: Path) -> None:
    project = untrusted_project(tmp_path / "one")
    trust_project(project)
    shutil.copytree(project, tmp_path / "copy")
    assert not is_trusted(tmp_path / "copy")


def test_foreign_or_changed_run_is_not_trusted(tmp_path: Path) -> None:
    project = untrusted_project(tmp_path / "one")
    trust_project(project)
    foreign_run = project / "runs" / "R2"
    foreign_run.mkdir()
    (foreign_run / "run.json").write_text('{"id": "R2", "config": {"agent": {"command": "sh"}}}')
    with pytest.raises(Refused, match="R2 is not trusted"):
        require_run_trust(foreign_run)
    (project / "runs" / "R1" / "run.json").write_text('{"id": "R1", "agent": "changed"}')
    with pytest.raises(Refused, match="R1 is not trusted"):
        require_run_trust(project / "runs" / "R1")


def test_link_to_a_trusted_project_is_trusted(tmp_path: Path) -> None:
    project = untrusted_project(tmp_path / "one")
    trust_project(project)
    (tmp_path / "alias").symlink_to(project)
    assert is_trusted(tmp_path / "alias")


def test_trusting_writes_nothing_into_the_project(tmp_path: Path) -> None:
    project = untrusted_project(tmp_path / "one")
    before = sorted(project.rglob("*"))
    trust_project(project)
    assert sorted(project.rglob("*")) == before
    assert (trust_folder() / "trust.json").stat().st_mode & 0o777 == 0o600
