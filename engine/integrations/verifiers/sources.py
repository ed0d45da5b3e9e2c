"""Environment that a person names: a package on PyPI, a folder, or a task set of the library."""

import re
import tempfile
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

from engine.integrations.packaged_tasks.wheels import (
    download_wheel,
    sources_of_folder,
    sources_of_wheel,
)
from engine.integrations.verifiers.inspection import FoundModule, Kind, find_module
from engine.protocol.problems import ConfigError

VERSIONS: dict[Kind, str] = {"taskset": "==0.4.0", "environment": ">=0.1.14,<0.4"}
"""Versions of verifiers: 0.4 has task sets alone, and before it most have `load_environment`."""
BUILT_IN = {"textarena": "ta", "openenv": "openenv", "harbor": "harbor", "nemo_gym": ""}
"""Task sets that the library brings → its extra with their packages."""
NETWORKED = ("openenv", "harbor", "nemo_gym")
"""Task sets of these whose rollouts call servers."""
NAME = re.compile(
    r"(?P<package>[A-Za-z0-9][A-Za-z0-9._-]*)(?P<extras>\[[A-Za-z0-9,._-]+\])?"
    r"(?:==(?P<version>[A-Za-z0-9.!+]+))?(?::(?P<module>[A-Za-z_][\w.]*))?"
)
LIBRARY = "verifiers"
LIBRARY_LINE = re.compile(r"verifiers\b(?![-_.])", re.IGNORECASE)


class EnvironmentSource(NamedTuple):
    name: str
    module: FoundModule
    requirements: list[str]
    """Lines of a requirements file."""
    folder: Path | None = None
    """Import folder to copy into the project; None for installed packages."""


def find_source(name: str) -> EnvironmentSource:
    """Find the environment called `name`: a package of PyPI (NAME, NAME==VERSION, NAME[EXTRA],
    NAME:MODULE), a folder, or a task set of verifiers. Downloads the package's wheel to read it,
    without running it. Raises ConfigError."""
    name = name.strip()
    folder = Path(name).expanduser()
    if name.startswith((".", "/", "~")) or (folder.is_dir() and "/" in name):
        return _of_folder(folder)
    if "/" in name:
        raise ConfigError.of(
            "verifiers.hub",
            f"{name} is a name of the Environments Hub, which Atelier does not reach.",
            f"Download the environment with `prime env pull {name}`, and name the folder.",
        )
    match = NAME.fullmatch(name)
    if match is None:
        raise ConfigError.of(
            "verifiers.bad_name",
            f"{name[:100] or 'An empty text'} is not the name of a package or a folder.",
            "Write NAME, NAME==VERSION or NAME:MODULE, or the path of a folder.",
        )
    key = match["package"].replace("-", "_").lower()
    if key in BUILT_IN and not match["module"]:
        extra = f"[{BUILT_IN[key]}]" if BUILT_IN[key] else ""
        requirement = f"{LIBRARY}{extra}{VERSIONS['taskset']}"
        return EnvironmentSource(key, FoundModule(key, "taskset"), [requirement])
    return _of_package(match)


def _of_package(match: re.Match[str]) -> EnvironmentSource:
    package, extras = match["package"], match["extras"] or ""
    requirement = package + (f"=={match['version']}" if match["version"] else "")
    with tempfile.TemporaryDirectory(prefix="atelier-") as folder:
        wheel = download_wheel(requirement, Path(folder))
        version = wheel.name.split("-")[1]
        found = find_module(sources_of_wheel(wheel), package, match["module"] or "")
    lines = [f"{LIBRARY}{VERSIONS[found.kind]}", f"{package}{extras}=={version}"]
    return EnvironmentSource(package, found, lines)


def _of_folder(folder: Path) -> EnvironmentSource:
    folder = folder.resolve()
    if not folder.is_dir():
        raise ConfigError.of(
            "verifiers.no_folder",
            f"There is no folder {folder}.",
            "Name the folder with the environment's Python file or package.",
        )
    project = _pyproject(folder)
    name = str(project.get("name") or folder.name)
    root = folder / "src" if (folder / "src").is_dir() else folder
    found = find_module(sources_of_folder(root), name)
    needed = [str(one) for one in project.get("dependencies", [])]
    lines = [f"{LIBRARY}{VERSIONS[found.kind]}"]
    lines += [one for one in needed if not LIBRARY_LINE.match(one)]
    return EnvironmentSource(name, found, lines, root)


def _pyproject(folder: Path) -> dict[str, Any]:
    file = folder / "pyproject.toml"
    if not file.is_file():
        return {}
    try:
        project = tomllib.loads(file.read_text(encoding="utf-8")).get("project", {})
    except (ValueError, OSError) as error:
        raise ConfigError.of(
            "verifiers.bad_pyproject", f"{file.name} cannot be read: {error}.", where=str(file)
        ) from error
    if not isinstance(project, dict) or not isinstance(project.get("dependencies", []), list):
        raise ConfigError.of(
            "verifiers.bad_pyproject", f"{file.name} has no valid [project].", where=str(file)
        )
    return project
