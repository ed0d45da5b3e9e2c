"""Project of a packaged task: agent, packages, settings; its scenarios are read after the packages
are installed (`data_set`)."""

import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import tomlkit

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
"""Folder of the project with the copy of a task that is a folder."""
REQUIREMENTS = "requirements.txt"
SCENARIOS = "scenarios/train.jsonl"
TIMEOUT_S = 600
TRAIN = {"steps": 40, "groups": 4, "group_size": 8, "max_tokens": 256}


class TaskProject(NamedTuple):
    """Contents of a new project."""

    name: str
    description: str
    agent: str
    """Folder of `resources/agents` with its agent."""
    settings: dict[str, Any]
    """Values of `SETTINGS` for the agent, besides name and arguments."""
    requirements: list[str]
    """Lines of its requirements file."""
    copy: Callable[[Path], None] | None = None
    """Copies the folder of the task to a path; None for installed packages."""


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
        "task.bad_arguments",
        f"The arguments are {why}.",
        'Write an object such as {"num_examples": 100}.',
        where="arguments",
    )


def begin_project(
    folder: Path, name: str, arguments: dict[str, Any], find: Callable[[], TaskProject]
) -> None:
    """Create the project of the task `name`, which `find` looks up, in a new or empty folder,
    without scenarios. In a project of it that still has none, only the arguments are replaced.
    Raises ConfigError."""
    if (folder / SETTINGS).is_file() and (folder / FILE).is_file():
        _continue(folder, name, arguments)
        return
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise _taken(folder)
    made = find()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".new-") as scratch:
        project = Path(scratch) / "project"
        shutil.copytree(AGENTS / made.agent, project)
        if made.copy is not None:
            made.copy(project / COPY)
        write_settings(project, {"name": name, **made.settings, "arguments": arguments})
        replace_file(project / REQUIREMENTS, "".join(f"{line}\n" for line in made.requirements))
        replace_file(project / FILE, _toml(made))
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
            "task.no_settings",
            f"{project.name} is not a project of a packaged task: it has no {SETTINGS}.",
            "Create one with `atelier new FOLDER --verifiers NAME` or `--inspect TASK`.",
            where=str(file),
        ) from error
    except (OSError, ValueError) as error:
        raise ConfigError.of(
            "task.bad_settings", f"{SETTINGS} cannot be read: {error}.", where=str(file)
        ) from error
    if not isinstance(values, dict) or not isinstance(values.get("arguments"), dict):
        raise ConfigError.of(
            "task.bad_settings",
            f"{SETTINGS} is not an object with module and arguments.",
            where=str(file),
        )
    return values


def write_settings(project: Path, values: dict[str, Any]) -> None:
    """Replace the settings of a project's task."""
    replace_file(project / SETTINGS, json.dumps(values, indent=2, ensure_ascii=False) + "\n")


def keep_weights(project: Path, weights: dict[str, float]) -> None:
    """Store the weights of rewards in the settings."""
    write_settings(project, read_settings(project) | {"weights": weights})


def _continue(folder: Path, name: str, arguments: dict[str, Any]) -> None:
    values = read_settings(folder)
    if (folder / SCENARIOS).exists() or values.get("name") != name:
        raise _taken(folder)
    require_trust(folder)
    write_settings(folder, values | {"arguments": arguments})


def _taken(folder: Path) -> ConfigError:
    return ConfigError.of(
        "project.exists",
        f"{folder} exists and is not empty.",
        "Choose another name.",
        where=str(folder),
    )


def _toml(made: TaskProject) -> str:
    document = tomlkit.document()
    document["name"] = made.name
    document["description"] = made.description
    document["agent"] = {"requirements": REQUIREMENTS, "timeout_s": TIMEOUT_S}
    document["train"] = dict(TRAIN)
    return tomlkit.dumps(document)
