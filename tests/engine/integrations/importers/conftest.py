"""Fixtures: an .art folder written by ART itself, once a session, and an empty project."""

import asyncio
import subprocess
from pathlib import Path

import pytest

from engine.bench.rival import environment
from engine.integrations.importers.storage import import_run
from engine.storage.run_db.reader import RunReader
from engine.storage.run_folder.run import DATABASE

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def art(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("art") / ".art"
    home = folder / "shop" / "models" / "agent-001"
    subprocess.run([str(environment()), str(HERE / "art_writer.py"), str(home)], check=True)
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "project.toml").write_text('[model]\nname = "none"\n')
    return folder


def import_source(project: Path, source: Path, model: str = "", mask: bool = False) -> RunReader:
    """Import `source` and return a reader of the stored run; the caller closes it."""
    folder = asyncio.run(import_run(project, source, model, mask))
    assert folder.parent == project / "runs"
    return RunReader(folder / DATABASE)
