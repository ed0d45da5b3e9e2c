"""Contestants of an evaluation: `base`, `RUN@STEP`, `openai/…` → models with complete weights.

Input: names as typed. Output: records that the evaluation stores in run.json. Raises ConfigError
for unknown names.
"""

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from engine.models.registry import find_model, model_of
from engine.protocol.config.project import ProjectConfig
from engine.protocol.problems import ConfigError, ModelError, Refused
from engine.protocol.records.runs import RunSpec
from engine.protocol.requests.evaluation import BASE, Contestant
from engine.runtime.files import sha256_of
from engine.storage.checkpoints.checkpoint import ADAPTER, WEIGHTS
from engine.storage.checkpoints.references import NamedCheckpoint, find_checkpoint, newest_best


def find_contestants(
    project: Path, config: ProjectConfig, names: Sequence[str]
) -> list[Contestant]:
    """Return the models to compare, in the order of `names`; without names, the base model and the
    best checkpoint of the newest run. Repeated models are numbered."""
    chosen = [_find(project, config, name) for name in names]
    chosen = chosen or [_base(config), _newest_best(project, config)]
    seen: Counter[str] = Counter()
    numbered = []
    for one in chosen:
        seen[one.name] += 1
        count = seen[one.name]
        name = one.name if count == 1 else f"{one.name} #{count}"
        numbered.append(one.model_copy(update={"name": name}))
    return numbered


def check_adapter(project: Path, contestant: Contestant) -> Path:
    """Adapter folder of a compared model. Raises ConfigError if its weights are missing, or have
    changed since the evaluation began."""
    folder = project / contestant.adapter
    try:
        same = sha256_of(folder / WEIGHTS) == contestant.sha256
    except OSError:
        same = False
    if not same:
        raise ConfigError.of(
            "evaluation.adapter_changed",
            f"The weights of {contestant.name} have changed since this evaluation began.",
            "Restore the checkpoint, or start another evaluation.",
            where=str(folder),
        )
    return folder


def _find(project: Path, config: ProjectConfig, name: str) -> Contestant:
    if name == BASE:
        return _base(config)
    if "/" in name:
        return Contestant(name=name, kind="provider", model=name)
    try:
        return _checkpoint(project, config, find_checkpoint(project, name))
    except ConfigError as error:
        if error.problem.code != "run.unknown":
            raise
        hint = f"{error.problem.hint} Write an API model as PROVIDER/MODEL."
        raise ConfigError(error.problem.model_copy(update={"hint": hint})) from None


def _base(config: ProjectConfig) -> Contestant:
    model = config.model
    path = str(find_model(model.name))
    return Contestant(name=BASE, kind="base", model=model.name, model_path=path, shape=model)


def _newest_best(project: Path, config: ProjectConfig) -> Contestant:
    if found := newest_best(project):
        return _checkpoint(project, config, found)
    raise ConfigError.of(
        "evaluation.nothing_trained",
        "No run of this project has a checkpoint to compare with the base model.",
        "Train first, or pass the models: --model base --model openai/gpt-5.4.",
        where=str(project),
    )


def _base_of(spec: RunSpec) -> str:
    """Path of a run's base model, or its former path if missing: loading reports that."""
    try:
        return str(model_of(spec, here=True))
    except ModelError:
        return spec.model_path


def _checkpoint(project: Path, config: ProjectConfig, found: NamedCheckpoint) -> Contestant:
    """Contestant of a checkpoint, with its LoRA rank and scale and the project's context."""
    model = found.spec.config.model
    lora = {"rank": model.rank, "alpha": model.alpha, "adapt_experts": model.adapt_experts}
    shape = {"name": model.name, **lora}
    one = Contestant(
        name=found.name,
        kind="base",
        model=model.name,
        model_path=_base_of(found.spec),
        shape=config.model.model_copy(update=shape),
    )
    if found.checkpoint is None:
        return one
    adapter = found.folder / found.checkpoint.path / ADAPTER
    if not adapter.exists():
        raise Refused.of(
            "checkpoint.not_here",
            f"The weights of {found.name} are not on this machine.",
            "First fetch the checkpoint from its server, on the Checkpoints page.",
            where=str(adapter),
        )
    weights = {"adapter": os.path.relpath(adapter, project), "sha256": sha256_of(adapter / WEIGHTS)}
    whose = {"kind": "checkpoint", "run_id": found.spec.id, "step": found.step}
    return one.model_copy(update=weights | whose)
