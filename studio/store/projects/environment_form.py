"""Form for a project from an environment of verifiers or a task of Inspect: what is wrong with its
values, and which field a problem of the engine belongs to."""

import json
import re
from collections.abc import Sequence
from pathlib import PurePath

from engine.protocol.records.runs import ProjectView
from engine.protocol.requests.drafts import BridgedLibrary
from studio.store.projects.draft import name_problem

NAME_HELP = (
    "Package on PyPI (NAME, NAME==VERSION, or NAME:MODULE), a folder with an environment, or a "
    "task set of verifiers such as textarena."
)
TASK_HELP = (
    "File of your own (FILE.py@TASK), which is copied with its folder, or a task of a package on "
    "PyPI (PACKAGE/TASK, or PACKAGE==VERSION/TASK)."
)
ARGUMENTS_HELP = (
    "Arguments of load_environment(), or settings of the task set, as a JSON object; "
    "empty for none."
)
TASK_ARGUMENTS_HELP = (
    "Arguments of the task as a JSON object; empty for none. model_roles names the models that its "
    'scorers call: {"model_roles": {"grader": "openai/gpt-5.4"}}.'
)
SCENARIOS_HELP = "Maximum number of training scenarios taken from the data set."
FIELDS = {
    "verifiers.bad_arguments": "arguments",
    "project.exists": "folder",
    "verifiers.bad_name": "name",
    "verifiers.hub": "name",
    "verifiers.no_folder": "name",
    "verifiers.no_module": "name",
    "task.not_found": "name",
    "verifiers.slow": "name",
    "verifiers.too_large": "name",
    "verifiers.bad_pyproject": "name",
    "inspect.bad_name": "name",
    "inspect.bad_file": "name",
    "inspect.no_file": "name",
    "inspect.no_task": "name",
    "inspect.no_tasks": "name",
    "inspect.too_large": "name",
}
"""Code of a problem → field of the form."""
MOST_CHARACTERS = 64


def field_of(code: str) -> str:
    """Field that a problem of the engine belongs to; empty if none."""
    return FIELDS.get(code, "")


def environment_problem(name: str, library: BridgedLibrary = "verifiers") -> str:
    """Return why a text cannot be the name of an environment or task; else empty."""
    if name.strip():
        return ""
    if library == "inspect":
        return "Enter FILE.py@TASK, or PACKAGE/TASK."
    return "Enter the name of a package, or the path of a folder."


def arguments_problem(text: str) -> str:
    """Return why a text is no JSON object; empty if it is one, or is empty."""
    if not text.strip():
        return ""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        return 'Write a JSON object such as {"num_examples": 100}.'
    return "" if isinstance(values, dict) else "Write a JSON object: names and values in braces."


def folder_problem(name: str, projects: Sequence[ProjectView]) -> str:
    """Return why a new project cannot have this folder name; else empty. Names of projects without
    training scenarios count as free: one of the same environment is continued."""
    return name_problem(name, [view for view in projects if _has_scenarios(view)])


def _has_scenarios(view: ProjectView) -> bool:
    return any(one.split == "train" and one.count for one in view.splits)


def folder_of(environment: str) -> str:
    """Suggest a folder name for the project of an environment or a task."""
    file, is_task, task = environment.strip().partition("@")
    text = task if is_task else file.removesuffix(".py").rstrip("/")
    text = PurePath(text).name if "/" in text else text.partition("==")[0].partition("[")[0]
    text = text.partition(":")[0]
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")[:MOST_CHARACTERS]
