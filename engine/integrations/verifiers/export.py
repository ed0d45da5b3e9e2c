"""Writes a project as an environment package of the library verifiers (0.4), which runs the
project's agent against the model that is evaluated and scores it as Atelier does."""

import json
import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from engine.environments.agent_packages import packages_name
from engine.integrations.packaged_tasks.project import AGENTS, SETTINGS
from engine.integrations.verifiers.sources import LIBRARY, LIBRARY_LINE, VERSIONS
from engine.protocol.config.project import ProjectConfig
from engine.protocol.problems import ConfigError
from engine.protocol.records.runs import Split
from engine.runtime.files import move_into_place
from engine.runtime.paths import PACKAGE
from engine.storage.project import load_config, load_scenarios, refuse_outside

HOST_FILES = ("host_agent.py", "host_results.py")
"""Modules of Atelier that run an agent; the package has copies of them."""
LEFT_OUT = (
    *("runs", "sweeps", "scenarios", ".git", ".env", ".atelier", ".venv", "venv"),
    *("__pycache__", "*.db", ".DS_Store"),
)
MOST_BYTES = 2**28
SPLITS: tuple[Split, ...] = ("train", "validation")
OPTION = re.compile(r"\s--?[A-Za-z].*")


def export_environment(project: Path, out: Path) -> str:
    """Write the package into the new or empty folder `out`, and return its name. Raises ConfigError
    if the project has an agent or a reward that verifiers cannot express, or `out` has files."""
    config = load_config(project)
    _check(project, config)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError.of(
            "export.not_empty", f"{out} exists and is not empty.", "Choose another folder."
        )
    module = module_name(project.name)
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".export-") as scratch:
        folder = Path(scratch) / "package"
        package = folder / module
        shutil.copytree(AGENTS / "exported", package)
        for name in HOST_FILES:
            text = (PACKAGE / "rollout" / "agents" / name).read_text(encoding="utf-8")
            text = text.replace("from host_results import", "from .host_results import")
            (package / name).write_text(text, encoding="utf-8")
        _copy_project(project, package / "project")
        _write_scenarios(project, config, package / "scenarios")
        (package / "settings.json").write_text(_settings(config), encoding="utf-8")
        name = module.replace("_", "-")
        needed = _dependencies(project, config)
        (folder / "pyproject.toml").write_text(_pyproject(name, module, needed), encoding="utf-8")
        (folder / "README.md").write_text(_readme(name, config), encoding="utf-8")
        if out.exists():
            out.rmdir()
        move_into_place(folder, out)
    return name


def module_name(project: str) -> str:
    """Name of the module for a project folder: `my-agent` → `my_agent_environment`."""
    words = re.sub(r"\W+", "_", project.lower(), flags=re.ASCII).strip("_")
    return f"{'project_' if not words or words[0].isdigit() else ''}{words}_environment"


def _check(project: Path, config: ProjectConfig) -> None:
    refuse_outside(config)
    if (project / SETTINGS).is_file():
        raise ConfigError.of(
            "export.is_environment",
            "This project was made from an environment of verifiers or a task of Inspect.",
            "Use that environment or task itself.",
        )
    if config.judge.enabled:
        raise ConfigError.of(
            "export.judged",
            "The judge of this project compares the trajectories of a group, and verifiers scores "
            "each rollout alone.",
            "Set judge.enabled to false to export the other reward parts.",
            where="judge.enabled",
        )


def _copy_project(project: Path, target: Path) -> None:
    """Copy the files of a project except runs, scenarios and secrets. Raises ConfigError if one
    is a link to a place outside, or they are too large."""
    ignored = shutil.ignore_patterns(*LEFT_OUT)
    size = 0

    def ignore(folder: str, names: list[str]) -> set[str]:
        nonlocal size
        left = ignored(folder, names)
        for file in (Path(folder) / name for name in names if name not in left):
            if not file.resolve().is_relative_to(project.resolve()):
                raise ConfigError.of(
                    "export.link_outside",
                    f"{file.relative_to(project)} is a link to a place outside the project.",
                    "Copy the file into the project.",
                    where=str(file),
                )
            size += file.stat().st_size if file.is_file() else 0
        if size > MOST_BYTES:
            raise ConfigError.of(
                "export.too_large",
                f"The project has more than {MOST_BYTES >> 20} MB of files besides its runs.",
                "Move what the agent does not need out of the project.",
            )
        return left

    shutil.copytree(project, target, ignore=ignore)


def _write_scenarios(project: Path, config: ProjectConfig, folder: Path) -> None:
    folder.mkdir()
    for split in SPLITS:
        found = load_scenarios(project, config, split)
        if found:
            lines = (one.model_dump_json(include={"id", "title", "data"}) for one in found)
            (folder / f"{split}.jsonl").write_text("".join(f"{line}\n" for line in lines), "utf-8")


def _settings(config: ProjectConfig) -> str:
    agent = config.agent
    values = {
        "file": agent.file,
        "command": agent.command or "",
        "output_bytes": agent.max_output_bytes,
        **config.reward.model_dump(mode="json", include={"weights", "required", "constraints"}),
    }
    return json.dumps(values, indent=2, ensure_ascii=False) + "\n"


def _dependencies(project: Path, config: ProjectConfig) -> list[str]:
    """Packages of the agent: those of a requirements.in beside its requirements, else of these. A
    lock pins packages that verifiers pins too, so its versions are left out."""
    if not packages_name(project, config.agent):
        return []
    file = project / str(config.agent.requirements)
    source = file.with_suffix(".in")
    text = (source if source.is_file() else file).read_text(encoding="utf-8")
    locked = "--hash=" in text
    found = []
    for line in text.replace("\\\n", " ").splitlines():
        words = OPTION.sub("", line.partition(" #")[0]).strip()
        if not words or words.startswith(("#", "-")) or LIBRARY_LINE.match(words):
            continue
        found.append(words.partition("==")[0] if locked else words)
    return found


def _pyproject(name: str, module: str, needed: Sequence[str]) -> str:
    lines = [f"{LIBRARY}{VERSIONS['taskset']}", *needed]
    listed = "".join(f"    {json.dumps(line)},\n" for line in lines)
    return f"""[project]
name = "{name}"
version = "0.1.0"
description = "A project of Atelier as an environment of verifiers."
requires-python = ">=3.11"
dependencies = [
{listed}]

[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[tool.hatch.build.targets.wheel]
packages = ["{module}"]
"""


def _readme(name: str, config: ProjectConfig) -> str:
    return f"""# {name}

The project "{config.name or name}" as an environment of [verifiers](https://pypi.org/project/verifiers/).
Its agent runs in the process of the evaluation, with your rights.

```sh
pip install -e .
vf-eval {name} -n 4 --model MODEL --client.base-url URL --client.api-key-var VARIABLE
```

`--env.taskset.split validation` evaluates on the scenarios that are held out from training.
"""
