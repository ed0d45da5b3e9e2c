"""Rows of runs for lists, from what their folders hold; damaged folders, and copies, included."""

import hashlib
import os
import traceback
from pathlib import Path

from engine.protocol.events.run import (
    RunExtended,
    RunFailed,
    RunFinished,
    RunStarted,
    RunStopped,
    StepFinished,
    ValidationFinished,
)
from engine.protocol.events.sft import LossMeasured
from engine.protocol.problems import AtelierError, Problem, StoreError, in_one_line, readable
from engine.protocol.records.runs import LIVING, RunSpec, RunState, RunSummary
from engine.remote.mirror.record import read_record
from engine.runtime.ids import begun_at
from engine.storage.run_db.reader import RunReader
from engine.storage.run_folder.files import check_run_folder
from engine.storage.run_folder.run import DATABASE, SPEC, is_locked, read_spec

SUMMARY_KINDS = (
    "run.queued",
    "run.started",
    "run.extended",
    "run.paused",
    "run.continued",
    "run.stopped",
    "run.failed",
    "run.finished",
    "review.opened",
    "review.closed",
    "step.finished",
    "validation.finished",
    "loss.measured",
)

STATES: dict[str, RunState] = {
    "run.queued": "queued",
    "run.started": "running",
    "run.continued": "running",
    "run.paused": "paused",
    "review.opened": "reviewing",
    "review.closed": "running",
    "run.stopped": "stopped",
    "run.failed": "failed",
    "run.finished": "finished",
}


def summarise(folder: Path) -> RunSummary:
    """Fold a run's events into its row. Raises StoreError where the folder cannot be read."""
    check_run_folder(folder)
    if readable(str(folder)) != str(folder):
        raise StoreError.of(
            "store.bad_name",
            "The name of the run's folder, or of its project, is not UTF-8.",
            "Rename the folder of the project, or remove the run.",
            where=str(folder),
        )
    spec = read_spec(folder)
    if spec.id != folder.name:
        raise StoreError.of(
            "store.other_id",
            f"Its {SPEC} is that of run {spec.id[:40]!a}, and its folder has another name.",
            "Give the folder the name of its run, outside of any project that has it already.",
            where=str(folder),
        )
    reader = RunReader(folder / DATABASE)
    try:
        seq = reader.last_seq()  # before the events: one that is stored meanwhile counts as newer
        events = reader.events_of(*SUMMARY_KINDS)
        trajectories, unscored = reader.counts()
    finally:
        reader.close()
    steps: dict[int, float | None] = {}
    planned = spec.updates
    losses: dict[int, float] = {}
    validations, problem, device = [], None, ""
    state: RunState = "starting"
    changed = spec.started_at
    for event in events:
        state = STATES.get(event.kind, state)
        changed = max(changed, event.at)
        match event:
            case StepFinished():
                steps[event.step] = event.metrics.get("reward/mean")
            case ValidationFinished():
                validations.append(event)
            case LossMeasured():
                losses[event.step] = event.loss
            case RunExtended():
                planned = event.steps
            case RunStarted():
                device, problem = event.device, None
            case RunFailed():
                problem = event.problem
            case RunStopped() | RunFinished():
                problem = None
    elsewhere = read_record(folder)
    if state in LIVING and not elsewhere and not is_locked(folder):
        state = "stopped"
        problem = Problem(
            code="run.interrupted",
            message="The engine ended while this run was going on.",
            hint="Start its script again: it goes on by itself."
            if spec.kind == "outside"
            else "Resume goes on from the last checkpoint; everything stored is kept.",
        )
    plan = spec.evaluation
    validations.sort(key=lambda event: event.step)
    return RunSummary(
        id=spec.id,
        name=spec.name,
        kind=spec.kind,
        project=spec.project,
        project_path=str(folder.parents[1]),
        path=str(folder),
        host=elsewhere.host if elsewhere else "",
        state=state,
        step=max(steps, default=0),
        steps=planned,
        started_at=spec.started_at,
        changed_at=changed,
        device=device,
        model=spec.config.model.name,
        source=spec.source,
        parent=spec.parent,
        rewards=[steps[number] for number in sorted(steps)] if spec.kind != "sft" else [],
        losses=[losses[number] for number in sorted(losses)],
        validation=validations[-1].reward if validations else None,
        baseline=validations[0].reward if validations and validations[0].step == 0 else None,
        trajectories=trajectories,
        unscored=unscored,
        contestants=[one.name for one in plan.contestants] if plan else [],
        attempts=plan.total if plan else 0,
        problem=problem,
        seq=seq,
    )


def problem_of(error: Exception, where: Path) -> Problem:
    """Problem of a folder that cannot be read, from the error."""
    if isinstance(error, AtelierError):
        return error.problem
    return Problem(
        code="store.damaged",
        message=f"The folder cannot be read: {type(error).__name__}: {in_one_line(error)}.",
        hint="Repair the run, or remove it.",
        where=str(where),
        detail="".join(traceback.format_exception(error))[-4000:],
    )


def same_id(folder: Path, owner: Path) -> RunSummary:
    """A copy of a run, under an id that tells the two apart."""
    problem = Problem(
        code="store.same_id",
        message=f"This is a copy of a run of {owner.parents[1].name}: both have the same id.",
        hint="Remove the copy, or open the copied project without the other one.",
        where=str(folder),
    )
    mark = hashlib.sha256(os.fsencode(folder)).hexdigest()[:8]
    return damaged_run(folder, problem).model_copy(update={"id": f"{folder.name}-{mark}"})


def damaged_run(folder: Path, problem: Problem) -> RunSummary:
    """A run that cannot be read, with what is known of it; one that is only beginning is not yet
    whole."""
    try:
        check_run_folder(folder)
        spec: RunSpec | None = read_spec(folder)
    except AtelierError:
        spec = None
    changed = folder.stat().st_mtime
    started = (spec.started_at if spec else None) or begun_at(folder.name) or changed
    return RunSummary(
        id=readable(folder.name),
        name=spec.name if spec else readable(folder.name)[-8:].lower(),
        kind=spec.kind if spec else "train",
        project=readable(folder.parents[1].name),
        project_path=readable(str(folder.parents[1])),
        path=readable(str(folder)),
        state="starting" if is_locked(folder) else "damaged",
        step=0,
        steps=spec.updates if spec else 0,
        started_at=started,
        changed_at=changed,
        model=spec.config.model.name if spec else "",
        problem=problem,
    )
