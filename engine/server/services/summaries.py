"""Run summaries for lists, read from run folders, including damaged folders and copies."""

import hashlib
import os
import traceback
from pathlib import Path

from engine.protocol.config.flat import changed_settings
from engine.protocol.events.progress import KINDS, RunProgress
from engine.protocol.problems import AtelierError, Problem, StoreError, in_one_line, readable
from engine.protocol.records.runs import ACTIVE_STATES, RunSpec, RunSummary
from engine.remote.mirror.record import read_record
from engine.runtime.ids import ulid_time
from engine.storage.run_folder.files import check_run_folder
from engine.storage.run_folder.notes import read_notes
from engine.storage.run_folder.run import SPEC, is_locked, read_spec, run_reader


def summarise(folder: Path) -> RunSummary:
    """Summary of a run from its events. Raises StoreError if the folder is unreadable."""
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
            f"The run id in {SPEC}, {spec.id[:40]!a}, differs from the name of this folder.",
            "Rename the folder to that id. If the project already has that run, move the folder to "
            "another project first.",
            where=str(folder),
        )
    with run_reader(folder) as reader:
        seq = reader.last_seq()  # before the events: one that is stored meanwhile counts as newer
        events = reader.events_of(*KINDS)
        trajectories, unscored = reader.counts()
        usd = reader.judge_cost() + reader.attempts_cost()
    progress = RunProgress(spec.id, planned=spec.updates).fold_all(events)
    state, problem, validations = progress.status, progress.problem, progress.validations
    elsewhere = read_record(folder)
    if state in ACTIVE_STATES and not elsewhere and not is_locked(folder):
        state = "stopped"
        problem = Problem(
            code="run.interrupted",
            message="The engine ended while this run was active.",
            hint="Start the script again to resume the run."
            if spec.kind == "outside"
            else "Resume the run from its last checkpoint; all stored data is kept.",
        )
    plan, best = spec.evaluation, progress.best
    return RunSummary(
        id=spec.id,
        name=spec.name,
        kind=spec.kind,
        project=spec.project,
        project_path=str(folder.parents[1]),
        path=str(folder),
        host=elsewhere.host if elsewhere else "",
        state=state,
        step=progress.done,
        steps=progress.planned,
        started_at=spec.started_at,
        changed_at=max(spec.started_at, progress.at),
        trained_s=progress.trained_s,
        idle_s=progress.idle_s,
        device=progress.device,
        model=spec.config.model.name,
        source=spec.source,
        parent=spec.parent,
        sweep=spec.sweep,
        rewards=list(progress.rewards.values()) if spec.kind != "sft" else [],
        losses=[progress.losses[step] for step in sorted(progress.losses)],
        validation=validations[-1].reward if validations else None,
        baseline=validations[0].reward if validations and validations[0].step == 0 else None,
        win_rate=progress.win_rate,
        win_rates=[rate.mean for _, rate in sorted(progress.win_rates.items())],
        best=best[1] if best else None,
        best_step=best[0] if best else 0,
        judged=spec.config.judge.enabled,
        trajectories=trajectories,
        unscored=unscored,
        contestants=[one.name for one in plan.contestants] if plan else [],
        attempts=plan.total if plan else 0,
        usd=usd,
        settings=changed_settings(spec.config),
        notes=read_notes(folder),
        problem=problem,
        seq=seq,
    )


def problem_of(error: Exception, where: Path) -> Problem:
    """Problem that describes why the folder `where` is unreadable."""
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
    """Summary of the damaged run in `folder`, a copy that has the id of the run in `owner`. The
    summary has another id."""
    problem = Problem(
        code="store.same_id",
        message=f"This is a copy of a run of {owner.parents[1].name}: both runs have the same id.",
        hint="Remove the copy, or open the copied project without the original project.",
        where=str(folder),
    )
    mark = hashlib.sha256(os.fsencode(folder)).hexdigest()[:8]
    return damaged_run(folder, problem).model_copy(update={"id": f"{folder.name}-{mark}"})


def damaged_run(folder: Path, problem: Problem) -> RunSummary:
    """Summary, with `problem`, of the run in `folder` from the files that are readable. Its state
    is `damaged`, or `starting` while the folder is locked, since files may not be written yet."""
    try:
        check_run_folder(folder)
        spec: RunSpec | None = read_spec(folder)
    except AtelierError:
        spec = None
    changed = folder.stat().st_mtime
    started = (spec.started_at if spec else None) or ulid_time(folder.name) or changed
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
        notes=read_notes(folder),
        problem=problem,
    )
