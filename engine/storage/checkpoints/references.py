"""References to checkpoints: `RUN@STEP`, `RUN@best`, `RUN@newest`, or `RUN`.

RUN is a name, an id, or the end of an id, among the trained runs of one project.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from engine.protocol.problems import ConfigError, StoreError
from engine.protocol.records.runs import TRAINING_KINDS, Checkpoint, RunSpec
from engine.storage.checkpoints import checkpoint
from engine.storage.checkpoints.retention import CheckpointFacts
from engine.storage.run_folder.run import run_reader, specs_of

BEST, NEWEST = "best", "newest"
SHORTEST = 4
"""Minimum number of final characters of an id that identify a run."""


class NamedCheckpoint(NamedTuple):
    """A checkpoint and its run; `checkpoint` is None for the weights before the first update."""

    folder: Path
    spec: RunSpec
    checkpoint: Checkpoint | None

    @property
    def step(self) -> int:
        return self.checkpoint.step if self.checkpoint else 0

    @property
    def name(self) -> str:
        return f"{self.spec.name}@{self.step}"


def trained_runs(project: Path) -> list[tuple[Path, RunSpec]]:
    """Return folder and spec of all runs that train a model, newest first."""
    return [(folder, spec) for folder, spec in specs_of(project) if spec.kind in TRAINING_KINDS]


def matching(runs: Sequence[tuple[Path, RunSpec]], name: str) -> list[tuple[Path, RunSpec]]:
    """Return those of `runs` with this name or id or, if there are none, those whose id ends with
    `name` (of at least `SHORTEST` characters)."""
    found = [run for run in runs if name in (run[1].id, run[1].name)]
    if not found and len(name) >= SHORTEST:
        found = [run for run in runs if run[1].id.endswith(name.upper())]
    return found


def find_run(project: Path, name: str) -> tuple[Path, RunSpec]:
    """Return folder and spec of the training run with this name, id or end of an id. Raises
    ConfigError if none or several match."""
    runs = trained_runs(project)
    found = matching(runs, name)
    if len(found) == 1:
        return found[0]
    if found:
        ids = ", ".join(spec.id[-8:] for _, spec in found)
        raise ConfigError.of(
            "run.ambiguous",
            f"{len(found)} runs are called {name}.",
            f"Select a run by the end of its id: {ids}.",
            where=str(project),
        )
    known = ", ".join(spec.name for _, spec in runs[:8]) or "none yet"
    raise ConfigError.of(
        "run.unknown",
        f"{project.name} has no trained run called {name}.",
        f"Its trained runs are: {known}.",
        where=str(project),
    )


def find_checkpoint(project: Path, reference: str) -> NamedCheckpoint:
    """Return the checkpoint for a reference: `RUN@STEP`, `RUN@best`, `RUN@newest` or just `RUN`
    (its newest). Step 0, the weights before training, always exists. Raises ConfigError if there is
    no such checkpoint, or if its files are damaged."""
    name, _, which = reference.partition("@")
    return find_in_run(*find_run(project, name), which)


def find_in_run(folder: Path, spec: RunSpec, which: str) -> NamedCheckpoint:
    """Return a checkpoint of the run in `folder`. `which` is a step, `best`, or `newest` or empty
    for the newest whose files are undamaged. Raises ConfigError like `find_checkpoint`."""
    kept, known = _kept(folder)
    if which == "0" and not any(one.step == 0 for one in kept):
        return NamedCheckpoint(folder, spec, None)
    chosen: Checkpoint | None
    if which in ("", NEWEST) and kept:
        chosen = checkpoint.newest(folder, kept) or kept[-1]
    elif which == BEST:
        chosen = _best(kept, known)
    else:
        chosen = next((one for one in kept if str(one.step) == which), None)
    if chosen is None:
        raise _missing(f"{spec.name}@{which}", spec, which, kept)
    if not checkpoint.verify(folder / chosen.path):
        raise ConfigError.of(
            "checkpoint.damaged",
            f"The files of {spec.name}@{chosen.step} are missing or were changed after they were "
            "written.",
            "Use another step of that run.",
            where=str(folder / chosen.path),
        )
    return NamedCheckpoint(folder, spec, chosen)


def newest_best(project: Path) -> NamedCheckpoint | None:
    """Return the best validated checkpoint of the newest training run that has checkpoints, or its
    last one if none was validated; None if no run has any. Damaged runs and checkpoints are
    skipped."""
    for folder, spec in trained_runs(project):
        try:
            kept, known = _kept(folder)
        except StoreError:
            continue
        if whole := [one for one in kept if checkpoint.verify(folder / one.path)]:
            return NamedCheckpoint(folder, spec, _best(whole, known) or whole[-1])
    return None


def _kept(folder: Path) -> tuple[list[Checkpoint], CheckpointFacts]:
    with run_reader(folder) as reader:
        return reader.checkpoints(), CheckpointFacts(reader)


def _best(kept: list[Checkpoint], known: CheckpointFacts) -> Checkpoint | None:
    """Return the checkpoint with the best validation; the earlier of equals, None without any."""
    merits = known.merits
    tested = [one for one in kept if one.step in merits]
    return min(tested, key=lambda one: (-merits[one.step], one.step), default=None)


def _missing(reference: str, spec: RunSpec, which: str, kept: list[Checkpoint]) -> ConfigError:
    steps = ", ".join(str(one.step) for one in kept)
    if not kept:
        words, hint = f"{spec.name} has no checkpoint yet.", "Train until the run saves one."
    elif which == BEST:
        words = f"No checkpoint of {spec.name} was validated, so the best one is unknown."
        hint = f"Give a step instead: {spec.name}@{kept[-1].step}."
    else:
        words = f"There is no checkpoint {reference}."
        hint = f"This run has checkpoints of these steps: {steps}."
    return ConfigError.of("checkpoint.unknown", words, hint, where=reference)
