"""Changes of a sweep's record: pure functions from one record to the next."""

from engine.protocol.problems import Problem
from engine.protocol.records.sweeps import SweepRecord, SweepRun, SweepState, SweepTrial
from engine.protocol.requests.sweeps import ActOnSweep
from engine.training.sweep.results import next_run, updated

MOST_FAILURES = 3
"""Failed trials in a row after which a sweep stops."""
MOST_RESUMPTIONS = 2
"""Times that engines resume an interrupted sweep by themselves without a step in between."""


def with_state(
    record: SweepRecord, state: SweepState, problem: Problem | None = None
) -> SweepRecord:
    return record.model_copy(update={"state": state, "problem": problem})


def with_run(record: SweepRecord, number: int, run: SweepRun) -> SweepRecord:
    """Return the record with the run of trial `number` (from 1) that has the seed of `run` replaced
    by `run`. If `run` is pruned, runs of the trial that have not started are pruned, too."""
    trial = record.trials[number - 1]
    runs = [run if one.seed == run.seed else one for one in trial.runs]
    if run.state == "pruned":
        runs = [
            one.model_copy(update={"state": "pruned"}) if one.state == "waiting" else one
            for one in runs
        ]
    changed = updated(trial.model_copy(update={"runs": tuple(runs)}), record.config.judge.enabled)
    return _with_trial(record, changed)


def resumed(record: SweepRecord, request: ActOnSweep) -> SweepRecord:
    """Return the record of a sweep that a person resumes, with the budgets given in `request`.
    Failed trials at the end of the list are reset, to be tried again."""
    budgets = {
        name: value
        for name in ("budget_hours", "budget_usd")
        if (value := getattr(request, name)) is not None
    }
    sweep = record.config.sweep.model_copy(update=budgets)
    config = record.config.model_copy(update={"sweep": sweep})
    record = record.model_copy(
        update={"config": config, "state": "waiting", "problem": None, "resumptions": 0}
    )
    for trial in reversed(record.trials):
        if trial.state == "failed":
            record = _with_trial(record, _retried(trial, record.config.judge.enabled))
        elif trial.state != "waiting":
            break
    return record


def resumed_by_itself(record: SweepRecord) -> SweepRecord | None:
    """Return the record of an interrupted sweep for an automatic resumption by a new engine; None
    after `MOST_RESUMPTIONS` in a row without a finished step, because the run itself may have
    crashed these engines."""
    found = next_run(record.trials)
    place = (found[1].run_id, found[1].step) if found else ("", len(record.trials))
    count = record.resumptions if place == record.resumed_at else 0
    if count >= MOST_RESUMPTIONS:
        return None
    return record.model_copy(
        update={"state": "waiting", "resumed_at": place, "resumptions": count + 1}
    )


def over_budget(record: SweepRecord) -> Problem | None:
    """Problem that says which budget is used up; None if none is."""
    runs = [run for trial in record.trials for run in trial.runs]
    hours, usd = sum(run.seconds for run in runs) / 3600, sum(run.cost_usd for run in runs)
    sweep = record.config.sweep
    if sweep.budget_hours is not None and hours >= sweep.budget_hours:
        return _spent(f"The time budget of {sweep.budget_hours:g} hours is used up.")
    if sweep.budget_usd is not None and usd >= sweep.budget_usd:
        return _spent(f"The budget of {sweep.budget_usd:g} US dollars is used up.")
    return None


def _spent(message: str) -> Problem:
    return Problem(
        code="sweep.budget", message=message, hint="Resume the sweep with a larger budget."
    )


def _with_trial(record: SweepRecord, trial: SweepTrial) -> SweepRecord:
    trials = list(record.trials)
    trials[trial.number - 1] = trial
    return record.model_copy(update={"trials": tuple(trials)})


def _retried(trial: SweepTrial, judged: bool) -> SweepTrial:
    runs = [
        run.model_copy(update={"state": "running" if run.run_id else "waiting", "problem": None})
        if run.state == "failed"
        else run
        for run in trial.runs
    ]
    return updated(trial.model_copy(update={"runs": tuple(runs)}), judged)
