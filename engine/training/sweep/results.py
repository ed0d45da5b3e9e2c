"""Results of runs and trials of a sweep. Pure."""

import math
import statistics
from collections.abc import Sequence

from engine.protocol.events.run import ValidationFinished
from engine.protocol.records.runs import Interval
from engine.protocol.records.sweeps import SweepPoint, SweepRecord, SweepRun, SweepTrial, TrialState
from engine.training.sweep.halving import continues
from engine.training.sweep.search import Outcome

NORMAL_95 = 1.959964
"""Two-sided 95 % quantile of the standard normal distribution."""
STUDENT_95 = (12.706, 4.303, 3.182, 2.776)
"""Two-sided 95 % quantiles of Student's t distribution with 1 to 4 degrees of freedom."""
ENDED = ("finished", "pruned", "failed")


def curve_of(
    validations: Sequence[ValidationFinished], judged: bool, steps: int
) -> tuple[SweepPoint, ...]:
    """Best validation of a run up to each of its validations, the one before training excluded.

    `judged`: win rates against the untrained policy as estimated at that validation, from all
    comparisons so far; otherwise mean rewards. `steps`: planned steps; validations after them, in a
    run that a person extended, do not count."""
    points: list[SweepPoint] = []
    for event in validations:
        if not 0 < event.step <= steps:
            continue
        if judged:
            found = {step: rate for step, rate in event.win_rates.items() if 0 < step <= event.step}
        else:
            before = points[-1] if points else None
            found = {before.best_step: before.best} if before and before.best else {}
            found |= {event.step: event.reward} if event.reward else {}
        best = max(found, key=lambda step: (found[step].mean, -step), default=0)
        points.append(SweepPoint(step=event.step, best=found.get(best), best_step=best))
    return tuple(points)


def combined(results: Sequence[Interval]) -> Interval | None:
    """Mean of the results of several seeds with its 95 % interval; None without results.

    Variance of the mean = mean variance within the runs (their validation scenarios are the same,
    so it does not shrink with more seeds) + variance between seeds / number of seeds. The quantile
    is Student's t with the degrees of freedom of Welch and Satterthwaite."""
    if len(results) < 2:
        return results[0] if results else None
    mean = math.fsum(one.mean for one in results) / len(results)
    errors = [(one.high - one.low) / (2 * NORMAL_95) for one in results]
    within = math.fsum(error**2 for error in errors) / len(errors)
    between = statistics.variance(one.mean for one in results) / len(results)
    count = min(one.count for one in results)
    if not within + between:
        return Interval(mean=mean, low=mean, high=mean, count=count)
    spread = within**2 / max(count - 1, 1) + between**2 / (len(results) - 1)
    half = student_95((within + between) ** 2 / spread) * math.sqrt(within + between)
    return Interval(mean=mean, low=mean - half, high=mean + half, count=count)


def student_95(degrees: float) -> float:
    """Two-sided 95 % quantile of Student's t for 1 or more degrees of freedom, rounded down to a
    whole number below 5; the Cornish-Fisher expansion from 5 on (Abramowitz and Stegun 26.7.5)."""
    if degrees < 5:
        return STUDENT_95[max(1, int(degrees)) - 1]
    z = NORMAL_95
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    return z + first / degrees + second / degrees**2


def updated(trial: SweepTrial, judged: bool) -> SweepTrial:
    """The trial with state, result and problem derived from its runs. `judged`: results are win
    rates, so the interval is cut to 0 to 1."""
    found = [run.result for run in trial.runs if run.result is not None]
    result = combined(found)
    if result and judged:  # a rate
        low, high = max(0.0, result.low), min(1.0, result.high)
        result = result.model_copy(update={"low": low, "high": high})
    problem = next((run.problem for run in trial.runs if run.state == "failed"), None)
    return trial.model_copy(
        update={"state": _state_of(trial), "result": result, "problem": problem}
    )


def _state_of(trial: SweepTrial) -> TrialState:
    states = {run.state for run in trial.runs}
    if "failed" in states:
        return "failed"
    if "pruned" in states:
        return "pruned"
    if states == {"finished"}:
        return "finished"
    return "waiting" if states == {"waiting"} else "running"


def may_continue(record: SweepRecord, trial: SweepTrial, step: int) -> bool:
    """Whether successive halving lets a trial continue after the validation of this step. The value
    of a trial there is the mean of its runs that reached it; failed and unscored ones are no
    competitors, and an unscored trial continues."""
    value = value_at(trial, step)
    if value is None:
        return True
    others = [
        other
        for one in record.trials
        if one.number != trial.number and one.state != "failed"
        if (other := value_at(one, step)) is not None
    ]
    return continues(value, others, record.config.sweep.reduction_factor)


def value_at(trial: SweepTrial, step: int) -> float | None:
    """Mean over the seeds of the best validation up to `step`, of the runs that were validated
    there; None if none was."""
    found = [
        point.best.mean
        for run in trial.runs
        for point in run.curve
        if point.step == step and point.best is not None
    ]
    return math.fsum(found) / len(found) if found else None


def outcome_of(trial: SweepTrial) -> Outcome:
    """Convert a trial for the search: its values, result and state, which is open unless it is
    finished or pruned with a result. A pruned one also has its mean result by step."""
    result = trial.result.mean if trial.result else None
    if trial.state == "finished" and result is not None:
        return Outcome(trial.values, "finished", result)
    if trial.state == "pruned" and result is not None:
        steps = sorted({point.step for run in trial.runs for point in run.curve})
        curve = {step: value for step in steps if (value := value_at(trial, step)) is not None}
        return Outcome(trial.values, "pruned", result, curve)
    return Outcome(trial.values, "open")


def best_trial(trials: Sequence[SweepTrial]) -> SweepTrial | None:
    """Finished trial with the best result, the first of equal ones; None if there is none."""
    finished = [one for one in trials if one.state == "finished" and one.result]
    return max(finished, key=lambda one: one.result.mean if one.result else 0.0, default=None)


def saved_steps(trials: Sequence[SweepTrial]) -> int:
    """Steps that were not trained because successive halving stopped the trial."""
    pruned = [one for one in trials if one.state == "pruned"]
    return sum(max(0, run.steps - run.step) for one in pruned for run in one.runs)


def failures_in_a_row(trials: Sequence[SweepTrial]) -> int:
    """Number of failed trials since the last one that ended otherwise."""
    count = 0
    for trial in reversed([one for one in trials if one.state in ENDED]):
        if trial.state != "failed":
            break
        count += 1
    return count


def next_run(trials: Sequence[SweepTrial]) -> tuple[SweepTrial, SweepRun] | None:
    """First run that is not over, of the first trial that is not; None if all are."""
    for trial in trials:
        if trial.state in ("waiting", "running"):
            for run in trial.runs:
                if run.state in ("waiting", "running"):
                    return trial, run
    return None
