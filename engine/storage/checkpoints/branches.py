"""Branches: runs that start from existing weights, of a checkpoint or of a LoRA adapter from
elsewhere.

A branch copies the state of its parent after a step, with trajectories and labels, so that it can
be read and moved on its own. It continues under a new name, with the same or changed settings. A
replay also copies the parent's later trajectories, and only trains on them again.
"""

import asyncio
import contextlib
import shutil
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from engine.models.file_checks import header, read_json
from engine.protocol.config.project import ProjectConfig
from engine.protocol.config.validation import changed_config
from engine.protocol.events.run import StepFinished
from engine.protocol.problems import ConfigError, ModelError, StoreError
from engine.protocol.records.runs import Checkpoint, Parent, RunSpec
from engine.protocol.requests.runs import StartRun
from engine.runtime.files import move_into_place, sha256_of, sync_tree
from engine.storage.checkpoints import checkpoint
from engine.storage.checkpoints.references import NamedCheckpoint, find_checkpoint
from engine.storage.project import load_config
from engine.storage.run_db.copy import copy_until
from engine.storage.run_db.writer import RunWriter
from engine.storage.run_folder.images import ImageStore
from engine.storage.run_folder.run import DATABASE, Run, run_reader, write_spec

SCRATCH = ".branch-"
FIXED = ("name", "rank", "alpha", "adapt_experts")
"""Model settings that a branch cannot change, because the adapter depends on them."""
ADAPTER_CONFIG = "adapter_config.json"
PLAIN = {"bias": "none", "use_dora": False, "modules_to_save": None, "lora_bias": False}
"""Values that these keys of `adapter_config.json` must have if present."""


class Origin(NamedTuple):
    """Source of a branch: weights and the settings that go with them."""

    parent: Parent
    config: ProjectConfig
    source: NamedCheckpoint | Path
    history: int = 0
    """Last step of the parent whose trajectories and events are copied."""


def find_origin(project: Path, request: StartRun) -> Origin:
    """Return the origin of a new run: the checkpoint `RUN@STEP` or the LoRA adapter folder that
    `request.origin` names. Raises ConfigError, ModelError or Refused if unusable."""
    folder = Path(request.origin)
    with contextlib.suppress(RuntimeError):  # ~nobody: a name that is looked for as it is
        folder = folder.expanduser()
    if "\0" not in request.origin and (adapter := _adapter_in(folder)):
        return _of_adapter(adapter.resolve(), load_config(project, request.overrides), request)
    if not request.origin.partition("@")[0] or "/" in request.origin or folder.is_dir():
        raise ConfigError.of(
            "branch.no_origin",
            f"{request.origin} is neither RUN@STEP nor a folder with an {ADAPTER_CONFIG}.",
            "Pass RUN@STEP of a run in this project, or a folder with a PEFT LoRA adapter.",
        )
    return _of_checkpoint(find_checkpoint(project, request.origin), request)


def _adapter_in(folder: Path) -> Path | None:
    """Return the folder itself, or the newest checkpoint of an ART model (`checkpoints/0007`)."""
    if (folder / ADAPTER_CONFIG).is_file():
        return folder
    numbered = [one for one in folder.glob("checkpoints/*") if one.name.isdigit()]
    newest = max(numbered, key=lambda one: int(one.name), default=None)
    return newest if newest and (newest / ADAPTER_CONFIG).is_file() else None


def _of_checkpoint(found: NamedCheckpoint, request: StartRun) -> Origin:
    config = changed_config(found.spec.config, request.overrides)
    for name in FIXED:
        was = getattr(found.spec.config.model, name)
        if getattr(config.model, name) != was:
            raise ConfigError.of(
                "branch.other_adapter",
                f"model.{name} cannot change in a branch: the adapter of {found.name} has {was}.",
                "Start a new run instead.",
                where=f"model.{name}",
            )
    if request.kind == "sft" or found.spec.kind == "sft":
        return _weights_of(found, request)
    history = found.step
    if request.replay:
        history = _replayed(found, request.overrides)
        config = changed_config(config, {"train.steps": history})
    elif config.train.steps <= found.step:
        raise ConfigError.of(
            "branch.no_steps",
            f"The branch starts after step {found.step}, but train.steps is {config.train.steps}.",
            "Step numbers continue from the parent run: set a larger train.steps.",
            where="train.steps",
        )
    parent = Parent(
        name=found.spec.name,
        run_id=found.spec.id,
        step=found.step,
        replay=request.replay,
        adapter=found.checkpoint.adapter if found.checkpoint else "",
    )
    return Origin(parent, config, found, history)


def _weights_of(found: NamedCheckpoint, request: StartRun) -> Origin:
    """Return the origin of a branch between supervised and RL runs, which takes over only weights:
    current project settings with the rank and alpha of the adapter, step 0, a new optimizer."""
    if request.replay:
        raise ConfigError.of(
            "branch.nothing_behind", f"{found.name} has no stored trajectories for a replay."
        )
    config = load_config(found.folder.parents[1], request.overrides)
    model = found.spec.config.model
    config = changed_config(config, {f"model.{name}": getattr(model, name) for name in FIXED})
    adapter = found.checkpoint.adapter if found.checkpoint else ""
    parent = Parent(
        name=found.spec.name,
        run_id=found.spec.id,
        step=found.step,
        adapter=adapter,
        weights_only=True,
    )
    return Origin(parent, config, found)


def _replayed(found: NamedCheckpoint, overrides: dict[str, Any]) -> int:
    """Return the last step that a replay trains on. Raises ConfigError if there is none."""
    if overrides:
        raise ConfigError.of(
            "branch.replay_changed",
            "A replay repeats the steps exactly, so settings cannot change.",
            "Omit the changed settings, or start the branch without a replay.",
        )
    with run_reader(found.folder) as reader:
        steps = [e.step for e in reader.events_of("step.finished") if isinstance(e, StepFinished)]
    if max(steps, default=0) <= found.step:
        raise ConfigError.of(
            "branch.nothing_behind",
            f"{found.spec.name} has no finished step after step {found.step} to replay.",
        )
    return max(steps)


def _of_adapter(folder: Path, config: ProjectConfig, request: StartRun) -> Origin:
    """Return the origin for a PEFT adapter, with the rank and alpha of its configuration; experts
    are adapted if it has factors of them, or if the settings ask for it."""
    if request.replay:
        raise ConfigError.of(
            "branch.nothing_behind", "An adapter without a run has no steps to replay."
        )
    values = _adapter_config(folder)
    rank, alpha = values["r"], float(values["lora_alpha"])
    if values.get("use_rslora"):
        alpha *= rank**0.5  # its scale is alpha / √r (2312.03732), ours alpha / r
    changed: dict[str, Any] = {"model.rank": rank, "model.alpha": alpha}
    if values.get("target_parameters"):
        changed["model.adapt_experts"] = True
    config = changed_config(config, changed)
    parent = Parent(name=folder.name, adapter=sha256_of(folder / checkpoint.WEIGHTS))
    return Origin(parent, config, folder)


def _adapter_config(folder: Path) -> dict[str, Any]:
    """Return the configuration of a plain LoRA adapter. Raises ModelError for other adapters."""
    values, why = {}, ""
    try:
        values = read_json(folder / ADAPTER_CONFIG)
        header(folder / checkpoint.WEIGHTS)
    except ModelError as error:
        why = error.problem.message
    rank, alpha = values.get("r"), values.get("lora_alpha")
    if not why and (type(rank) is not int or rank < 1):
        why = f"its rank (r) is {str(rank)[:40]}, not a positive number"
    if not why and (type(alpha) not in (int, float) or not 0 < float(str(alpha)) < 1e6):
        why = f"its lora_alpha is {str(alpha)[:40]}, not a positive number"
    if why:
        raise ModelError.of(
            "adapter.unreadable",
            f"The adapter cannot be read: {why.rstrip('.')}.",
            f"The folder needs valid {ADAPTER_CONFIG} and {checkpoint.WEIGHTS}.",
            where=str(folder),
        )
    plain = all(values.get(key) in (value, None, False) for key, value in PLAIN.items())
    patterns = values.get("rank_pattern") or values.get("alpha_pattern")
    if values.get("peft_type") == "LORA" and plain and not patterns:
        return values
    kind = "mixed ranks" if patterns else f"the type {values.get('peft_type')}"
    kind = kind if kind != "the type LORA" else "biases, DoRA or fully trained modules"
    raise ModelError.of(
        "adapter.unusual",
        f"Only plain LoRA can be trained further, but this adapter has {kind}.",
        "Merge the adapter into its base model, and set model.name to the merged model.",
        where=str(folder),
    )


async def make_branch(origin: Origin, project: Path, spec: RunSpec) -> Path:
    """Create the run folder of a branch with spec, history and checkpoint of its origin, and return
    it. Raises StoreError on disk errors; no partial folder is left."""
    with tempfile.TemporaryDirectory(dir=project, prefix=SCRATCH) as scratch:
        folder = Path(scratch) / spec.id
        try:
            kept = await asyncio.to_thread(_fill, origin, folder, spec)
        except (OSError, apsw.Error) as error:
            raise StoreError.of(
                "branch.not_written",
                f"The branch could not be written: {error}.",
                "Free some space and try again; partial files were deleted.",
                where=str(project),
            ) from error
        writer = RunWriter(folder / DATABASE, spec.id)
        try:
            if kept:
                await writer.add_checkpoint(kept)
        finally:
            await asyncio.to_thread(writer.close)
        (project / "runs").mkdir(exist_ok=True)
        return move_into_place(folder, project / "runs" / spec.id)


def _fill(origin: Origin, folder: Path, spec: RunSpec) -> Checkpoint | None:
    folder.mkdir()
    write_spec(folder, spec)
    target = checkpoint.folder_of(folder, origin.parent.begins)
    target.parent.mkdir()
    if isinstance(origin.source, Path):
        return _take_adapter(origin.source, folder, target)
    if origin.parent.weights_only:
        source = origin.source.checkpoint
        adapter = origin.source.folder / source.path / checkpoint.ADAPTER if source else None
        return _take_adapter(adapter, folder, target) if adapter else None
    run, source = origin.source.folder, origin.source.checkpoint
    database = run / DATABASE
    copy_until(database, folder / DATABASE, spec.id, origin.history, origin.parent.replay)
    ImageStore(run).copy_to(folder)
    if source is None:
        return None
    shutil.copytree(run / source.path, target, symlinks=True)  # no content from elsewhere
    if not checkpoint.verify(target):  # read back: a copy is no better than what was copied
        raise checkpoint.not_written(OSError("the copy differs"), target)
    sync_tree(target)
    return source


def _take_adapter(source: Path, folder: Path, target: Path) -> Checkpoint:
    """Publish a copy of a PEFT adapter as the checkpoint of step 0."""
    scratch = folder / "adapter"
    (scratch / checkpoint.ADAPTER).mkdir(parents=True)
    for name in (checkpoint.WEIGHTS, ADAPTER_CONFIG):
        shutil.copy(source / name, scratch / checkpoint.ADAPTER / name)
    size = checkpoint.publish(scratch, target, 0)
    return checkpoint.record(folder, 0, size, {})


async def compare_with_parent(run: Run, saved: Checkpoint) -> None:
    """Write to the run's log whether the adapter in checkpoint `saved` equals the parent's at that
    step; only if the run is a replay and the parent has that checkpoint."""
    parent = run.spec.parent
    if parent is None or not parent.replay:
        return
    try:
        theirs = await asyncio.to_thread(
            find_checkpoint, run.project, f"{parent.run_id}@{saved.step}"
        )
    except ConfigError:
        return  # nothing to compare with: the parent keeps no whole checkpoint of this step
    if theirs.checkpoint is None:
        return
    equal = theirs.checkpoint.adapter == saved.adapter
    words = "is identical to that" if equal else "differs from that"
    await run.log(
        "info" if equal else "warning",
        "replay",
        f"Step {saved.step}: the adapter {words} of {parent.name}.",
    )
