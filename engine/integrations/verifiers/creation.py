"""Creates the project of an environment."""

import shutil
from functools import partial
from pathlib import Path
from typing import Any

from engine.integrations.packaged_tasks.project import TaskProject, begin_project
from engine.integrations.packaged_tasks.wheels import LEFT_OUT
from engine.integrations.verifiers.sources import NETWORKED, find_source
from engine.protocol.problems import ConfigError

MOST_FOLDER_BYTES = 2**28


def begin_environment(folder: Path, name: str, arguments: dict[str, Any]) -> None:
    """Create the project of the environment `name` in a new or empty folder, without scenarios. In
    a project of it that still has none, only the arguments are replaced. Raises ConfigError."""
    begin_project(folder, name, arguments, partial(_find, name))


def _find(name: str) -> TaskProject:
    source = find_source(name)
    module, kind = source.module
    return TaskProject(
        name=source.name,
        description=f"The environment {source.name} of the library verifiers.",
        agent=kind,
        settings={"module": module, "kind": kind, "needs_servers": module in NETWORKED},
        requirements=source.requirements,
        copy=partial(_copy_folder, source.folder) if source.folder else None,
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
