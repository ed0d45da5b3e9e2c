"""Folders of a script's runs: one project in the workspace per project of the script, and one run
per model that it trains."""

import re
import time
from pathlib import Path
from typing import Any

import tomlkit

from engine.models.file_checks import read_json
from engine.models.registry import STARTERS, find_model
from engine.protocol.problems import ConfigError, ModelError, Refused
from engine.protocol.records.runs import RunSpec
from engine.protocol.requests.scripts import OpenOutside
from engine.runtime.ids import ulid
from engine.storage.project import FILE, load_config, write_toml
from engine.storage.run_folder.run import specs_of
from engine.trust.projects import trust_new_project

MOST_CONTEXT = 8192
"""Default context length in tokens, reduced to that of the model."""
ABOUT = """An external script makes the rollouts and starts each step, so there is no agent
and no scenario here. These settings apply to the next run; existing runs keep theirs."""
SETTINGS: dict[str, Any] = {
    "train": {
        "lr": 5e-6,
        "validate_every": 0,
        "checkpoint_every": 1,
        "algorithm": {"preset": "art"},
    }
}
"""ART's defaults for training; those for the adapter follow."""
RANK, ALPHA = 8, 16


def project_for(workspace: Path, request: OpenOutside) -> Path:
    """Return the project folder of a script, created in `workspace` if missing. Raises Refused if a
    project with an agent has that name, ModelError if the base model is missing."""
    folder = workspace / folder_name(request.project)
    if not (folder / FILE).exists():
        model = base_model(request.base_model)
        path = find_model(model)
        folder.mkdir(parents=True, exist_ok=True)
        write_toml(folder, _toml(request.project, model, _context(path)))
        trust_new_project(folder)
    if load_config(folder).agent.source != "outside":
        raise Refused.of(
            "outside.project_taken",
            f"The project {folder.name} has its own agent, so no script can train in it.",
            "Use another project name in the script, or another workspace for the backend.",
            where=str(folder),
        )
    return folder


def known_run(project: Path, model: str) -> tuple[Path, RunSpec] | None:
    """Folder and spec of the existing run of the script's model `model`, or None."""
    runs = (one for one in specs_of(project) if one[1].kind == "outside")
    return next((one for one in runs if one[1].name == model), None)


def spec_for(project: Path, request: OpenOutside, versions: dict[str, str]) -> RunSpec:
    """Spec of a new run for a script; `versions` maps packages to versions. Raises ConfigError for
    an invalid setting, ModelError if the base model cannot be used."""
    name = base_model(request.base_model)
    path = find_model(name)
    config = load_config(project, {"model.name": name, **request.settings})
    if config.judge.enabled:
        raise ConfigError.of(
            "outside.judge",
            "The project enables the judge, but a script computes its own rewards.",
            "Set judge.enabled to false, and judge stored groups on the Judge page.",
            where=str(project / FILE),
        )
    return RunSpec(
        id=ulid(),
        name=request.model,
        kind="outside",
        project=config.name or project.name,
        started_at=time.time(),
        config=config,
        model_path=str(path),
        versions=versions,
        source=request.source,
    )


def differences(spec: RunSpec, request: OpenOutside, project: Path) -> list[str]:
    """Return a sentence for each setting that a script requests with another value than its
    existing run (`spec`) has; the run keeps its own value. Raises Refused if the base model
    differs."""
    name = base_model(request.base_model)
    if name != spec.config.model.name:
        raise Refused.of(
            "outside.other_base",
            f"The run {spec.name} was started with the base model {spec.config.model.name}, "
            f"not {name}.",
            "Give the model another name to start a new run.",
        )
    wanted = load_config(project, {"model.name": name, **request.settings})
    sentences = []
    for key in request.settings:
        was, now = _value(spec, key), _value(spec.model_copy(update={"config": wanted}), key)
        if was != now:
            sentences.append(f"{key} stays {was}, the value that the run {spec.name} started with.")
    return sentences


def base_model(name: str) -> str:
    """Return the name of a model on this machine: a starter model that is named by its Hub id gets
    its starter name, unless the Hub's version is here."""
    starter = next((one for one in STARTERS if one.hub_id == name), None)
    if starter is None:
        return name
    try:
        find_model(name)
    except ModelError:
        return starter.name
    return name


def folder_name(project: str) -> str:
    """Return the folder name for a project's name, with hyphens for other characters than letters,
    digits, `_` and `.`. Raises ConfigError if nothing is left."""
    name = re.sub(r"[^\w.-]+", "-", project).strip(".-")
    if not name:
        raise ConfigError.of(
            "outside.no_name",
            f"{project!r} is not a valid folder name.",
            "Use a project name with letters or digits.",
        )
    return name


def _toml(project: str, model: str, context: int) -> str:
    document = tomlkit.document()
    for line in ABOUT.splitlines():
        document.add(tomlkit.comment(line))
    shape = {"name": model, "max_context": context, "rank": RANK, "alpha": ALPHA}
    agent = {"source": "outside"}
    train = {**SETTINGS["train"], "max_tokens": context}
    values = {"name": project, "model": shape, "agent": agent, "train": train}
    for key, value in values.items():
        document.add(key, tomlkit.item(value))
    return tomlkit.dumps(document)


def _context(model: Path) -> int:
    limit = read_json(model / "config.json").get("max_position_embeddings")
    return min(MOST_CONTEXT, limit) if isinstance(limit, int) else MOST_CONTEXT


def _value(spec: RunSpec, key: str) -> Any:
    value: Any = spec.config.model_dump(mode="json")
    for part in key.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value
