"""Sweeps as shown in lists and on their page, computed from their records. Pure."""

from pathlib import Path

from engine.protocol.records.sweeps import SweepRecord, SweepSummary, SweepView
from engine.training.sweep.results import ENDED, best_trial, outcome_of, saved_steps
from engine.training.sweep.search import importance


def summary_of(record: SweepRecord, folder: Path) -> SweepSummary:
    """Summary of a sweep, stored in `folder`, for lists of sweeps."""
    best = best_trial(record.trials)
    return SweepSummary(
        id=record.id,
        name=record.name,
        project=record.project,
        project_path=str(folder.parents[1]),
        path=str(folder),
        state=record.state,
        problem=record.problem,
        started_at=record.started_at,
        metric=record.metric,
        method=record.config.sweep.method,
        trials_planned=record.planned,
        trials_ended=sum(trial.state in ENDED for trial in record.trials),
        best=best.number if best else None,
        result=best.result if best else None,
        revision=record.revision,
    )


def view_of(record: SweepRecord, folder: Path, running: str = "") -> SweepView:
    """Everything about the sweep in `folder`; `running` is the id of its active run."""
    runs = [run for trial in record.trials for run in trial.runs]
    to_propose = record.planned - len(record.trials)
    later = to_propose * record.config.sweep.seeds * record.config.train.steps
    return SweepView(
        **summary_of(record, folder).model_dump(),
        sweep=record.config.sweep,
        space=record.space,
        trials=list(record.trials),
        running=running,
        importance=importance(record.space, [outcome_of(trial) for trial in record.trials]),
        steps_done=sum(run.step for run in runs),
        steps_planned=sum(run.steps for run in runs) + later,
        steps_saved=saved_steps(record.trials),
        seconds=sum(run.seconds for run in runs),
        cost_usd=sum(run.cost_usd for run in runs),
        prune_at=record.prune_at,
    )
