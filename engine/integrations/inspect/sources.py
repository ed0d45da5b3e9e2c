"""Task of Inspect that a person names: in a Python file, or in a package on PyPI."""

import ast
import configparser
import re
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from engine.integrations.packaged_tasks.wheels import (
    download_wheel,
    sources_of_wheel,
    top_level_names,
)
from engine.protocol.problems import ConfigError

REQUIREMENTS = ("inspect-ai==0.3.285", "openai>=2")
"""Packages of every task: the library, and the client that it calls a model's endpoint with."""
OWN = re.compile(r"(inspect[-_]ai|openai)\b(?![-_.])", re.IGNORECASE)
GROUP = "inspect_ai"
"""Group of entry points in which a package names the module with its tasks."""
PACKAGE = re.compile(
    r"(?P<package>[A-Za-z0-9][A-Za-z0-9._-]*)(?:==(?P<version>[A-Za-z0-9.!+]+))?"
    r"/(?P<task>[A-Za-z_]\w*)"
)
MOST_NAMED = 12


class TaskSource(NamedTuple):
    name: str
    """Name of the task."""
    module: str
    """Module with the task, or the entry point of a package that names this module."""
    registered: bool
    """Whether `module` is the name of an entry point."""
    requirements: list[str]
    """Lines of a requirements file."""
    folder: Path | None = None
    """Folder to copy into the project; None for installed packages."""


def find_task(name: str) -> TaskSource:
    """Find a task: FILE.py@TASK, or FILE.py with a single task; PACKAGE/TASK or
    PACKAGE==VERSION/TASK of a package on PyPI. Its text is read and not run. Raises ConfigError."""
    name = name.strip()
    file, _, task = name.partition("@")
    if file.endswith(".py"):
        return _of_file(Path(file).expanduser().resolve(), task)
    match = PACKAGE.fullmatch(name)
    if match is None:
        raise ConfigError.of(
            "inspect.bad_name",
            f"{name[:100] or 'An empty text'} does not name a task of Inspect.",
            "Write FILE.py@TASK, or PACKAGE/TASK, such as inspect-evals/gsm8k.",
        )
    return _of_package(match)


def _of_file(file: Path, task: str) -> TaskSource:
    if not file.is_file():
        raise ConfigError.of(
            "inspect.no_file",
            f"There is no file {file}.",
            "Name the Python file with the task: FILE.py@TASK.",
        )
    if not file.stem.isidentifier():
        raise ConfigError.of(
            "inspect.bad_file",
            f"{file.name} cannot be imported: its name is no Python identifier.",
            "Rename the file with letters, digits and underscores.",
        )
    found = tasks_in(file.read_text(encoding="utf-8", errors="replace"))
    task = task or (found[0] if len(found) == 1 else "")
    if task not in found:
        raise _no_task(task, file.name, found, f"{file.name}@")
    own = file.with_name("requirements.txt")
    lines = own.read_text(encoding="utf-8").splitlines() if own.is_file() else []
    needed = [line.strip() for line in lines if line.strip() and not OWN.match(line.strip())]
    return TaskSource(task, file.stem, False, [*REQUIREMENTS, *needed], file.parent)


def tasks_in(text: str) -> list[str]:
    """Names of the functions of a Python file that are decorated with `task`; empty if the text is
    no Python."""
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError):
        return []
    return [
        node.name
        for node in body
        if isinstance(node, ast.FunctionDef) and any(map(_is_task, node.decorator_list))
    ]


def _is_task(node: ast.expr) -> bool:
    node = node.func if isinstance(node, ast.Call) else node
    return (node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")) == "task"


def _of_package(match: re.Match[str]) -> TaskSource:
    package, task = match["package"], match["task"]
    requirement = package + (f"=={match['version']}" if match["version"] else "")
    with tempfile.TemporaryDirectory(prefix="atelier-") as folder:
        wheel = download_wheel(requirement, Path(folder))
        version = wheel.name.split("-")[1]
        entry, module = _entry_point(wheel, package)
        found = _registered(sources_of_wheel(wheel), module)
    if task not in found:
        raise _no_task(task, package, found, f"{requirement}/")
    return TaskSource(task, entry, True, [*REQUIREMENTS, f"{package}=={version}"])


def _entry_point(wheel: Path, package: str) -> tuple[str, str]:
    """Name and module of the package's entry point. Raises ConfigError if it has none."""
    with zipfile.ZipFile(wheel) as archive:
        names = [one for one in archive.namelist() if one.endswith(".dist-info/entry_points.txt")]
        text = archive.read(names[0]).decode(errors="replace") if names else ""
    parser = configparser.ConfigParser(delimiters=("=",), interpolation=None)
    try:
        parser.read_string(text)
    except configparser.Error:
        parser.clear()
    found = list(parser[GROUP].items()) if parser.has_section(GROUP) else []
    if not found:
        raise ConfigError.of(
            "inspect.no_tasks",
            f"The package {package} names no tasks of Inspect: it has no entry point in the group "
            f"{GROUP}.",
            "Check the name, or name the Python file with the task: FILE.py@TASK.",
        )
    name, value = found[0]
    return name, value.partition(":")[0].strip()


def _registered(sources: Mapping[str, str], module: str) -> list[str]:
    """Names that the module defines or imports, without private ones."""
    path = module.replace(".", "/")
    text = sources.get(f"{path}.py", sources.get(f"{path}/__init__.py", ""))
    return sorted(name for name in top_level_names(text) if not name.startswith("_"))


def _no_task(task: str, place: str, found: list[str], before: str) -> ConfigError:
    more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
    others = f" It has: {', '.join(found[:MOST_NAMED])}{more}." if found else ""
    what = f"no task {task}" if task else f"{len(found) or 'no'} tasks"
    return ConfigError.of(
        "inspect.no_task",
        f"{place} has {what}.{others}",
        f"Name a task: {before}{found[0]}." if found else "Decorate a function with @task.",
    )
