"""Creates the project of an environment: agent, packages, settings; its scenarios are read after
the packages are installed (`data_set`)."""

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import tomlkit

from engine.integrations.verifiers.inspection import LEFT_OUT
from engine.integrations.verifiers.sources import EnvironmentSource, find_source
from engine.protocol.json_text import parse_json
from engine.protocol.problems import ConfigError
from engine.runtime.files import move_into_place, replace_file
from engine.runtime.paths import RESOURCES
from engine.storage.project import FILE
from engine.trust.files import MOST_TEXT_BYTES, read_regular
from engine.trust.projects import require_trust, trust_new_project

AGENTS = RESOURCES / "agents"
SETTINGS = "environment.json"
COPY = "environment"
"""Folder of the project with the copy of an environment that is a folder."""
REQUIREMENTS = "requirements.txt"
SCENARIOS = "scenarios/train.jsonl"
MOST_FOLDER_BYTES = 2**28
TIMEOUT_S = 600
TRAIN = {"steps": 40, "groups": 4, "group_size": 8, "max_tokens": 256}


def parse_arguments(text: str) -> dict[str, Any]:
    """Parse the arguments of an environment: a JSON object, or empty. Raises ConfigError."""
    if not text.strip():
        return {}
    try:
        values = parse_json(text.encode())
    except ValueError as error:
        raise _wrong_arguments(f"not valid JSON: {error}") from error
    if not isinstance(values, dict):
        raise _wrong_arguments("JSON, but not an object")
    return values


def _wrong_arguments(why: str) -> ConfigError:
    return ConfigError.of(
        "verifiers.bad_arguments",
        f"The arguments are {why}.",
        'Write an object such as {"num_examples": 100}.',
        where="arguments",
    )


def begin_environment(folder: Path, name: str, arguments: dict[str, Any]) -> None:
    """Create the project of the environment `name` in a new or empty folder, without scenarios. In
    a project of it that still has none, only the arguments are replaced. Raises ConfigError."""
    if (folder / SETTINGS).is_file() and (folder / FILE).is_file():
        _continue(folder, name, arguments)
        return
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise _taken(folder)
    source = find_source(name)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".new-") as scratch:
        project = Path(scratch) / "project"
        shutil.copytree(AGENTS / source.module.kind, project)
        if source.folder is not None:
            _copy_folder(source.folder, project / COPY)
        module, kind = source.module
        values = {"name": name, "module": module, "kind": kind, "arguments": arguments}
        _write_settings(project, values)
        lines = "".join(f"{line}\n" for line in source.requirements)
        replace_file(project / REQUIREMENTS, lines)
        replace_file(project / FILE, _toml(source))
        if folder.exists():
            folder.rmdir()
        move_into_place(project, folder)
    trust_new_project(folder)


def read_settings(project: Path) -> dict[str, Any]:
    """environment.json of a project. Raises ConfigError if it is missing or invalid."""
    file = project / SETTINGS
    try:
        values = parse_json(read_regular(file, MOST_TEXT_BYTES))
    except FileNotFoundError as error:
        raise ConfigError.of(
            "verifiers.no_environment",
            f"{project.name} is not a project of an environment: it has no {SETTINGS}.",
            "Create one with `atelier new FOLDER --verifiers NAME`.",
            where=str(file),
        ) from error
    except (OSError, ValueError) as error:
        raise ConfigError.of(
            "verifiers.bad_settings", f"{SETTINGS} cannot be read: {error}.", where=str(file)
        ) from error
    if not isinstance(values, dict) or not isinstance(values.get("arguments"), dict):
        raise ConfigError.of(
            "verifiers.bad_settings",
            f"{SETTINGS} is not an object with module and arguments.",
            where=str(file),
        )
    return values


def _write_settings(project: Path, values: dict[str, Any]) -> None:
    replace_file(project / SETTINGS, json.dumps(values, indent=2, ensure_ascii=False) + "\n")


def keep_weights(project: Path, weights: dict[str, float]) -> None:
    """Store the weights of rewards in environment.json."""
    _write_settings(project, read_settings(project) | {"weights": weights})


def _continue(folder: Path, name: str, arguments: dict[str, Any]) -> None:
    values = read_settings(folder)
    if (folder / SCENARIOS).exists() or values.get("name") != name:
        raise _taken(folder)
    require_trust(folder)
    _write_settings(folder, values | {"arguments": arguments})


def _taken(folder: Path) -> ConfigError:
    return ConfigError.of(
        "project.exists",
        f"{folder} exists and is not empty.",
        "Choose another name.",
        where=str(folder),
    )


def _copy_folder(source: Path, target: Path) -> None:
    """Copy the import folder of an environment. Raises ConfigError if it is too large."""
    size = sum(file.stat().st_size for file in source.rglob("*") if file.is_file())
    if size > MOST_FOLDER_BYTES:
        raise ConfigError.of(
            "verifiers.too_large",
            f"The folder {source} has {size >> 20} MB; at most {MOST_FOLDER_BYTES >> 20} MB are "
            "copied.",
            "Name the folder of the environment alone.",
        )
    shutil.copytree(source, target, ignore=shutil.ignore_patterns(*LEFT_OUT, "__pycache__"))


def _toml(source: EnvironmentSource) -> str:
    document = tomlkit.document()
    document["name"] = source.name
    document["description"] = f"The environment {source.name} of the library verifiers."
    document["agent"] = {"requirements": REQUIREMENTS, "timeout_s": TIMEOUT_S}
    document["train"] = dict(TRAIN)
    return tomlkit.dumps(document)
