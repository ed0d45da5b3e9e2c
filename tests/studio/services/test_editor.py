"""Opening a file at a line: which problems name one, which program opens it, and nothing is run."""

import os
import sys
from pathlib import Path

import pytest
from PySide6.QtCore import QObject, QUrl, Slot
from PySide6.QtGui import QDesktopServices
from pytestqt.qtbot import QtBot

from engine.protocol.problems import Problem
from studio.services.editor import CodePlace, command_for, open_place, place_of


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "my agent"
    (folder / "scenarios").mkdir(parents=True)
    (folder / "agent.py").write_text("raise ValueError\n")
    (folder / "scenarios" / "train.jsonl").write_text("{}\n")
    (tmp_path / "outside.py").write_text("")
    return folder


def problem(where: str) -> Problem:
    return Problem(code="agent.raised", message="The agent raised ValueError.", where=where)


@pytest.mark.parametrize(
    ("where", "name", "line"),
    [
        ("agent.py, line 12", "agent.py", 12),
        ("scenarios/train.jsonl, line 3", "train.jsonl", 3),
        ("agent.py, line 7, column 4", "agent.py", 7),
    ],
)
def test_place_of_a_problem(project: Path, where: str, name: str, line: int) -> None:
    place = place_of(problem(where), str(project))
    assert place is not None
    assert (place.file.name, place.line, str(place)) == (name, line, f"{name}:{line}")


@pytest.mark.parametrize(
    "where",
    [
        "",
        "agent.py",
        "missing.py, line 3",
        "scenarios, line 3",
        "../outside.py, line 1",
        "/etc/passwd, line 1",
        "link.py, line 1",
        "\0, line 1",
        "agent.py, line many",
        f"{'a' * 500}, line 1",
        "judge.models[0]",
    ],
)
def test_other_problems_have_none(project: Path, where: str) -> None:
    (project / "link.py").symlink_to("../outside.py")
    assert place_of(problem(where), str(project)) is None


def test_project_must_be_known(project: Path) -> None:
    assert place_of(problem("agent.py, line 1"), "") is None


def program(folder: Path, name: str, out: Path | None = None) -> None:
    """Put a program that writes its arguments, one per line, into a folder of the path."""
    folder.mkdir(exist_ok=True)
    file = folder / name
    writes = f'printf "%s\\n" "$@" > "{out}"' if out else "exit 1"
    file.write_text(f"#!/bin/sh\n{writes}\n")
    file.chmod(0o755)


@pytest.mark.parametrize(
    ("variables", "name", "arguments"),
    [
        ({"VISUAL": "code --wait"}, "code", ["-g", "{file}:3"]),
        ({"EDITOR": "gedit"}, "gedit", ["+3", "{file}"]),
        ({"VISUAL": "kate", "EDITOR": "gedit"}, "kate", ["--line", "3", "{file}"]),
        ({"VISUAL": "vim", "EDITOR": "subl -w"}, "subl", ["{file}:3"]),
        ({"VISUAL": "'unclosed", "EDITOR": ""}, "codium", ["-g", "{file}:3"]),
        ({}, "codium", ["-g", "{file}:3"]),
    ],
)
def test_known_editor_gets_the_line(
    tmp_path: Path, project: Path, variables: dict[str, str], name: str, arguments: list[str]
) -> None:
    for installed in ("gedit", "kate", "subl", "vim", "codium", "code"):
        if installed != "code" or name == "code":
            program(tmp_path / "bin", installed)
    file = project / "agent.py"
    command = command_for(CodePlace(file, 3), {**variables, "PATH": str(tmp_path / "bin")})
    assert command == [str(tmp_path / "bin" / name), *(a.format(file=file) for a in arguments)]


def test_editor_that_is_not_installed_or_unknown_is_not_used(tmp_path: Path) -> None:
    place = CodePlace(tmp_path / "agent.py", 3)
    program(tmp_path / "bin", "vim")
    program(tmp_path / "bin", "evil")
    for editor in ("vim", "code", "evil", "sh -c evil", ";evil"):
        assert command_for(place, {"VISUAL": editor, "PATH": str(tmp_path / "bin")}) == []


def test_editor_is_started_with_the_file_as_one_argument(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, qtbot: QtBot
) -> None:
    folder = tmp_path / "a b; touch owned $(touch owned)"
    folder.mkdir()
    file = folder / "agent.py"
    file.write_text("")
    out = tmp_path / "arguments"
    program(tmp_path / "bin", "code", out)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("VISUAL", "code")
    open_place(CodePlace(file, 12))
    qtbot.waitUntil(lambda: out.exists() and bool(out.read_text()), timeout=5000)
    assert out.read_text().splitlines() == ["-g", f"{file}:12"]
    assert not list(tmp_path.rglob("owned"))


class Desktop(QObject):
    """Receives the addresses that would be opened."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[str] = []

    @Slot(QUrl)
    def open(self, url: QUrl) -> None:
        self.opened.append(url.toLocalFile())


@pytest.mark.parametrize(("platform", "shown"), [("linux", "agent.py"), ("win32", "my agent")])
def test_desktop_opens_the_file_or_its_folder(
    tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch, platform: str, shown: str
) -> None:
    for name in ("VISUAL", "EDITOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    monkeypatch.setattr(sys, "platform", platform)
    desktop = Desktop()
    QDesktopServices.setUrlHandler("file", desktop, "open")
    try:
        open_place(CodePlace(project / "agent.py", 3))
    finally:
        QDesktopServices.unsetUrlHandler("file")
    assert [Path(one).name for one in desktop.opened] == [shown]
