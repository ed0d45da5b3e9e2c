"""Creates the project of an Inspect task: agent, packages, settings; its scenarios are read after
the packages are installed."""

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import tomlkit

from engine.integrations.inspect.sources import TaskSource, find_task
from engine.integrations.verifiers.creation import (
    AGENTS,
    COPY,
    REQUIREMENTS,
    SCENARIOS,
    SETTINGS,
    TIMEOUT_S,
    TRAIN,
    read_settings,
)
from engine.integrations.verifiers.data_set import load_data
from engine.integrations.verifiers.inspection import LEFT_OUT
from engine.protocol.problems import ConfigError
from engine.protocol.requests.drafts import EnvironmentData
from engine.runtime.files import move_into_place, replace_file
from engine.storage.project import FILE, edit_text, read_toml, write_toml
from engine.trust.projects import require_trust, trust_new_project

KIND = "inspect"
ROLES = "model_roles"
"""Argument with the models of roles, such as the grader of a scorer; not one of the task."""
MOST_FILES = 2000
MOST_BYTES = 2**26
IGNORED = shutil.ignore_patterns(".*", "__pycache__", "logs", *LEFT_OUT)


def begin_task(folder: Path, name: str, arguments: dict[str, Any]) -> None:
    """Create the project of the task `name` in a new or empty folder, without scenarios. In a
    project of it that still has none, only the arguments are replaced. Raises ConfigError."""
    if not isinstance(arguments.get(ROLES, {}), dict):
        raise ConfigError.of(
            "verifiers.bad_arguments",
            f"{ROLES} is not an object.",
            'Write the model of each role, such as {"model_roles": {"grader": "openai/NAME"}}.',
            where="arguments",
        )
    if (folder / SETTINGS).is_file() and (folder / FILE).is_file():
        values = read_settings(folder)
        if (folder / SCENARIOS).exists() or values.get("name") != name:
            raise _taken(folder)
        require_trust(folder)
        _write_settings(folder, values | {"arguments": arguments})
        return
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise _taken(folder)
    source = find_task(name)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".new-") as scratch:
        project = Path(scratch) / "project"
        shutil.copytree(AGENTS / KIND, project)
        if source.folder is not None:
            copy_task(source.folder, project / COPY)
        values = {"name": name, "kind": KIND, "module": source.module, "task": source.name}
        _write_settings(project, values | {"registered": source.registered, "arguments": arguments})
        replace_file(project / REQUIREMENTS, "".join(f"{one}\n" for one in source.requirements))
        replace_file(project / FILE, _toml(source))
        if folder.exists():
            folder.rmdir()
        move_into_place(project, folder)
    trust_new_project(folder)


async def load_task_data(project: Path, limit: int) -> EnvironmentData:
    """Write the scenarios of a task's project, at most `limit` for training, from its data set.
    Raises ConfigError if the packages are missing, Refused if the task cannot be loaded."""
    found = await load_data(project, limit)
    if not read_settings(project)["arguments"].get(ROLES):
        return found
    write_toml(project, edit_text(read_toml(project), {"agent.sandbox": "none"}))
    note = "Scorers call other models, so the task runs with your rights (agent.sandbox is none)."
    return found.model_copy(update={"sandboxed": False, "notes": [*found.notes, note]})


def is_task(project: Path) -> bool:
    """Whether a project was made of a task. Raises ConfigError if its settings are invalid."""
    return (project / SETTINGS).is_file() and read_settings(project).get("kind") == KIND


def copy_task(source: Path, target: Path) -> None:
    """Copy the folder of a task's file, without hidden files and logs. Raises ConfigError if it has
    too many files, or is too large."""
    count = size = 0
    for folder, folders, files in os.walk(source):
        left_out = IGNORED(folder, [*folders, *files])
        folders[:] = [one for one in folders if one not in left_out]
        kept = [Path(folder, one) for one in files if one not in left_out]
        count += len(kept)
        size += sum(file.stat().st_size for file in kept if file.is_file())
        if count > MOST_FILES or size > MOST_BYTES:
            raise ConfigError.of(
                "inspect.too_large",
                f"The folder {source} has more than {MOST_FILES} files or {MOST_BYTES >> 20} MB; "
                "it is copied into the project.",
                "Put the task and the files that it reads into a folder of their own.",
            )
    shutil.copytree(source, target, ignore=IGNORED, symlinks=True)


def _write_settings(project: Path, values: dict[str, Any]) -> None:
    replace_file(project / SETTINGS, json.dumps(values, indent=2, ensure_ascii=False) + "\n")


def _taken(folder: Path) -> ConfigError:
    return ConfigError.of(
        "project.exists",
        f"{folder} exists and is not empty.",
        "Choose another name.",
        where=str(folder),
    )


def _toml(source: TaskSource) -> str:
    document = tomlkit.document()
    document["name"] = source.name
    document["description"] = f"The task {source.name} of Inspect."
    document["agent"] = {"requirements": REQUIREMENTS, "timeout_s": TIMEOUT_S}
    document["train"] = dict(TRAIN)
    return tomlkit.dumps(document)
