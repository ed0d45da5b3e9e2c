"""Retention of checkpoints: rules and reasons. Pure except `checkpoint_rows` and `prune`."""

import asyncio
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

from engine.protocol.events.checkpoints import (
    CheckpointBranched,
    CheckpointExported,
    CheckpointPinned,
)
from engine.protocol.events.run import ValidationFinished
from engine.protocol.events.sft import LossMeasured
from engine.protocol.problems import Refused
from engine.protocol.records.comparison import EQUAL
from engine.protocol.records.runs import Checkpoint, Interval, KeptBy, KeptCheckpoint, RunSpec
from engine.protocol.requests.runs import PinCheckpoint
from engine.storage.checkpoints import checkpoint
from engine.storage.run_db.reader import RunReader
from engine.storage.run_folder.run import Run

SPOKEN = (
    "checkpoint.pinned",
    "checkpoint.branched",
    "checkpoint.exported",
    "validation.finished",
    "loss.measured",
)


class CheckpointFacts:
    """Information about the checkpoints of a run, by step, read from its events."""

    def __init__(self, reader: RunReader) -> None:
        self.pinned: dict[int, str] = {}
        self.branches: dict[int, list[str]] = {}
        self.exported: set[int] = set()
        self.validations: dict[int, Interval] = {}
        self.win_rates: dict[int, Interval] = {}
        self.compared: set[int] = set()
        self.losses: dict[int, float] = {}
        for event in reader.events_of(*SPOKEN):
            match event:
                case CheckpointPinned():
                    self.pinned.pop(event.step, None)
                    if event.pinned:
                        self.pinned[event.step] = event.note
                case CheckpointExported():
                    self.exported.add(event.step)
                case CheckpointBranched():
                    self.branches.setdefault(event.step, []).append(event.name)
                case ValidationFinished():
                    if event.reward:
                        self.validations[event.step] = event.reward
                    self.win_rates = event.win_rates or self.win_rates
                    self.compared |= {one.opponent for one in event.against}
                case LossMeasured():
                    self.losses[event.step] = event.loss

    @property
    def merits(self) -> dict[int, float]:
        """Validation score by step, higher is better: win rates against the first validation if the
        run has any, else mean rewards, else negative held-out losses."""
        if self.win_rates:
            return dict.fromkeys(self.compared, EQUAL) | {
                step: rate.mean for step, rate in self.win_rates.items()
            }
        rewards = {step: reward.mean for step, reward in self.validations.items()}
        return rewards or {step: -loss for step, loss in self.losses.items()}


def reasons(
    steps: Iterable[int],
    validations: Mapping[int, float],
    marked: Mapping[int, set[KeptBy]],
    keep_last: int | None,
    keep_best: int,
) -> dict[int, tuple[KeptBy, ...]]:
    """Return the reasons to keep the checkpoint of each step; an empty tuple if there are none.
    `validations`: score by step; the `keep_best` highest are kept, of equal ones the earlier.
    `keep_last` newest are kept (None: all). `marked`: other reasons by step, such as `pinned`."""
    order = sorted(steps)
    newest = set(order if keep_last is None else order[-keep_last:])
    known = sorted((step for step in order if step in validations), key=lambda s: -validations[s])
    best = set(known[:keep_best])
    found = {}
    for step in order:
        why: list[KeptBy] = ["best"] if step in best else []
        why += sorted(marked.get(step, set()))
        why += ["newest"] if step in newest else []
        found[step] = tuple(why)
    return found


def kept_by(
    known: CheckpointFacts, checkpoints: Iterable[Checkpoint], spec: RunSpec
) -> dict[int, tuple[KeptBy, ...]]:
    """Return the reasons to keep each of `checkpoints`, by step; an empty tuple if there are none.
    `known` has facts from the run's events, `spec` the retention settings."""
    marked: dict[int, set[KeptBy]] = {}
    signs: dict[KeptBy, Iterable[int]] = {
        "pinned": known.pinned,
        "branched": known.branches,
        "exported": known.exported,
        "start": (spec.parent.begins,) if spec.parent else (),
    }
    for sign, marks in signs.items():
        for step in marks:
            marked.setdefault(step, set()).add(sign)
    steps = [one.step for one in checkpoints]
    train = spec.config.train
    return reasons(steps, known.merits, marked, train.keep_last, train.keep_best)


def checkpoint_rows(
    folder: Path, reader: RunReader, spec: RunSpec, replica: bool = False
) -> list[KeptCheckpoint]:
    """Checkpoints of the run in `folder`, oldest first, with state and reasons to keep them; a
    mirror (`replica`) need not have their files."""
    known, checkpoints = CheckpointFacts(reader), reader.checkpoints()
    why = kept_by(known, checkpoints, spec)
    return [
        KeptCheckpoint(
            checkpoint=one,
            state=_state(folder / one.path, replica),
            kept_by=why[one.step],
            note=known.pinned.get(one.step, ""),
            branches=tuple(known.branches.get(one.step, ())),
            validation=known.validations.get(one.step),
            win_rate=known.win_rates.get(one.step),
            loss=known.losses.get(one.step),
        )
        for one in checkpoints
    ]


def _state(path: Path, replica: bool) -> Literal["whole", "damaged", "elsewhere"]:
    if replica and not path.exists():
        return "elsewhere"
    return "whole" if checkpoint.is_complete(path) else "damaged"


async def prune(run: Run) -> None:
    """Delete checkpoints that no retention rule keeps: database record first, then files."""
    checkpoints = run.reader.checkpoints()
    why = kept_by(CheckpointFacts(run.reader), checkpoints, run.spec)
    for one in checkpoints:
        if not why[one.step]:
            await drop(run, one, "rule")


async def pin(run: Run, step: int, request: PinCheckpoint) -> None:
    """Pin or unpin the checkpoint of a step. Raises Refused if the run has none."""
    _kept(run, step)
    await run.say(CheckpointPinned(step=step, pinned=request.pinned, note=request.note))


async def delete(run: Run, step: int) -> None:
    """Delete a checkpoint. Raises Refused if it is unknown or the newest (used by resume)."""
    found = _kept(run, step)
    if step == run.reader.checkpoints()[-1].step:
        raise Refused.of(
            "checkpoint.newest",
            f"Step {step} is the newest checkpoint, from which the run resumes.",
            "Delete older checkpoints, or the whole run.",
        )
    await drop(run, found, "person")


def _kept(run: Run, step: int) -> Checkpoint:
    found = next((one for one in run.reader.checkpoints() if one.step == step), None)
    if found is None:
        raise Refused.of("checkpoint.unknown", f"This run has no checkpoint of step {step}.")
    return found


async def drop(run: Run, one: Checkpoint, by: checkpoint.By) -> None:
    await run.writer.drop_checkpoint(one, by)
    await asyncio.to_thread(shutil.rmtree, run.folder / one.path, ignore_errors=True)
