"""Sample projects: complete folders that ship with Atelier, and projects made of them."""

import shutil
import tempfile
import tomllib
from pathlib import Path

from engine.protocol.problems import ConfigError
from engine.protocol.records.choices import Sample
from engine.runtime.files import move_into_place
from engine.runtime.paths import RESOURCES
from engine.trust.projects import trust_new_project

SAMPLES = RESOURCES / "samples"
ABOUT = "sample.toml"
LEFT = (ABOUT, "__pycache__", "runs", "sweeps", "*.db")
"""Names of a sample's files that are not copied into a project: its description, and results of
running it."""


def samples() -> list[Sample]:
    """Return all sample projects in display order."""
    folders = sorted(folder for folder in SAMPLES.iterdir() if (folder / ABOUT).is_file())
    return sorted((_about(folder) for folder in folders), key=lambda sample: sample.place)


def create_project(folder: Path, sample: str | None) -> None:
    """Copy a sample (None: an empty project) and its shared files into a new folder. Raises
    ConfigError if the folder is not empty, or the sample is unknown."""
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError.of(
            "project.exists",
            f"{folder} exists and is not empty.",
            "Choose another name.",
            where=str(folder),
        )
    source = SAMPLES / (sample or "blank")
    if not source.is_dir():
        raise ConfigError.of("project.no_sample", f"There is no sample called {sample}.")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".new-") as scratch:
        copy = Path(scratch) / "project"
        shutil.copytree(source, copy, ignore=shutil.ignore_patterns(*LEFT))
        for shared in _about(source).files if (source / ABOUT).is_file() else ():
            _copy(source / shared, copy / Path(shared).name)
        if folder.exists():
            folder.rmdir()
        move_into_place(copy, folder)
    trust_new_project(folder)


def _about(folder: Path) -> Sample:
    values = tomllib.loads((folder / ABOUT).read_text(encoding="utf-8"))
    return Sample(name=folder.name, **values)


def _copy(source: Path, target: Path) -> None:
    """Copy a shared file or folder into a project; an existing single file is kept."""
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns(*LEFT), dirs_exist_ok=True)
    elif not target.exists():
        shutil.copy(source, target)
