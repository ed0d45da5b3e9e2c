"""Check of this machine: it names the workspace it was asked about."""

from pathlib import Path

import pytest

from engine.hardware.doctor import examine
from engine.protocol.records.machine.hardware import Check


def folders(workspace: Path | None) -> Check:
    return next(check for check in examine(workspace) if check.name == "Folders")


def test_workspace_of_the_engine_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATELIER_WORKSPACE", str(tmp_path / "default"))
    mine = folders(tmp_path / "mine")
    assert mine.words.startswith(f"workspace {tmp_path / 'mine'},")
    assert mine.state == "good"
    assert folders(None).words.startswith(f"workspace {tmp_path / 'default'},")
