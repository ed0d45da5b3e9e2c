"""Creates the project of an Inspect task."""

import os
import shutil
from functools import partial
from pathlib import Path
from typing import Any

from engine.integrations.inspect.sources import find_task
from engine.integrations.packaged_tasks.data_set import load_data
from engine.integrations.packaged_tasks.project import (
    SETTINGS,
    TaskProject,
    begin_project,
    read_settings,
)
from engine.integrations.packaged_tasks.wheels import LEFT_OUT
from engine.protocol.problems import ConfigError
from engine.protocol.requests.drafts import EnvironmentData
from engine.storage.project import edit_text, read_toml, write_toml

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
            "task.bad_arguments",
            f"{ROLES} is not an object.",
            'Write the model of each role, such as {"model_roles": {"grader": "openai/NAME"}}.',
            where="arguments",
        )
    begin_project(folder, name, arguments, partial(_find, name))


def _find(name: str) -> TaskProject:
    source = find_task(name)
    return TaskProject(
        name=source.name,
        description=f"The task {source.name} of Inspect.",
        agent=KIND,
        settings={"kind": KIND, "module": source.module, "task": source.name,
                  "registered": source.registered},
        requirements=source.requirements,
        copy=partial(copy_task, source.folder) if source.folder else None,
    )  # fmt: skip


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
