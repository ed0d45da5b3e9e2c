"""Folders that a sandbox shows: no link, setting or package of a project opens a private one."""

import sys
from pathlib import Path

import pytest

from engine.protocol.config.agent import AgentConfig
from engine.rollout.sandbox.view import view_of, without_nested


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    for name in (".ssh/bin", ".local/bin", ".local/share/keyrings", "tool/bin", "project"):
        (folder / name).mkdir(parents=True)
    monkeypatch.setenv("HOME", str(folder))
    return folder


def make_program(file: Path) -> Path:
    file.write_text("#!/bin/sh\n")
    file.chmod(0o755)
    return file


def shown(home: Path, python: str = sys.executable, command: str | None = None) -> set[str]:
    """Paths below the home folder that the sandbox of a project shows."""
    config = AgentConfig(command=command, sandbox="process")
    view = view_of(home / "project", config, python, [], verifies=False)
    return {source for source, _ in view["visible"] if Path(source).is_relative_to(home)}


def test_command_shows_its_folder_but_no_private_one(home: Path) -> None:
    project, local = str(home / "project"), make_program(home / ".local/bin/uv")
    tool = make_program(home / "tool/bin/run")
    assert shown(home, command=f"{tool} x") == {project, str(home / "tool")}
    assert shown(home, command=str(local)) == {project, str(local)}
    link = home / "project" / "run"
    link.symlink_to(local)
    assert shown(home, command=str(link)) == {project, str(local)}


@pytest.mark.parametrize("place", [".ssh", ".ssh/bin", ".local", ".local/share", ".", ".config"])
def test_interpreter_and_packages_open_no_private_folder(home: Path, place: str) -> None:
    (home / place).mkdir(parents=True, exist_ok=True)
    environment = home / "env"
    site = environment / "lib/python3.11/site-packages"
    site.mkdir(parents=True)
    (environment / "bin").mkdir()
    (environment / "bin/python").symlink_to(sys.executable)
    (site / "hostile.pth").write_text(f"{home / place}\n")
    (environment / "pyvenv.cfg").write_text(f"home = {home / place}/bin\n")
    link = home / "project-link"
    link.symlink_to(home / place)
    (site / "link.pth").write_text(f"{link}\n")
    found = shown(home, python=str(environment / "bin/python"))
    assert found == {str(home / "project"), str(environment)}


def test_folders_of_packages_installed_for_editing_are_shown(home: Path) -> None:
    package = home / "src/library"
    package.mkdir(parents=True)
    assert without_nested([str(package), str(package / "inner"), "/usr/lib", "/"]) == [str(package)]
