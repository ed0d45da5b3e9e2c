"""Text of sweeps: plan, progress and table, for `sweep` and `sweeps`."""

from collections.abc import Sequence

from engine.cli.terminal import duration, figure, percent, table
from engine.protocol.config.sweep import Range, SettingValue
from engine.protocol.records.runs import Interval
from engine.protocol.records.sweeps import SweepMetric, SweepPlan, SweepRun, SweepTrial, SweepView

METRICS: dict[SweepMetric, str] = {
    "validation/reward": "best validation reward",
    "validation/win_rate": "best win rate against the untrained policy",
}


def plan_text(plan: SweepPlan, project: str) -> str:
    """Plan of a sweep: its size, what varies, and its limits."""
    sweep = plan.sweep
    lines = [
        f"Sweep of {project}: {_many(plan.trials, 'trial')} × {_many(plan.seeds, 'seed')} = "
        f"{_many(plan.trials * plan.seeds, 'run')}, {_many(plan.steps, 'step')} at most",
        f"  method  {sweep.method}",
        f"  result  {METRICS[plan.metric]}" + (", mean over seeds" if plan.seeds > 1 else ""),
        *(f"  varies  {key}: {values_text(values)}" for key, values in plan.space.items()),
        f"  pruning {_pruning(plan)}",
    ]
    limits = [f"{sweep.budget_hours:g} hours"] if sweep.budget_hours is not None else []
    limits += [f"{sweep.budget_usd:g} US dollars"] if sweep.budget_usd is not None else []
    return "\n".join([*lines, *([f"  budget  {', '.join(limits)}"] if limits else [])])


def values_text(values: tuple[SettingValue, ...] | Range) -> str:
    """Values that a setting may have."""
    if isinstance(values, Range):
        scale = " (logarithmic)" if values.log else ""
        scale = f" in steps of {values.step:g}" if values.step is not None else scale
        return f"{values.low:g} to {values.high:g}{scale}"
    return ", ".join(map(value_text, values))


def value_text(value: SettingValue) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def run_text(view: SweepView, trial: SweepTrial, run: SweepRun) -> str:
    """Line about a run of a trial that has started or ended."""
    values = ", ".join(f"{key} {value_text(value)}" for key, value in trial.values.items())
    place = f"trial {trial.number} of {view.trials_planned} · {values}"
    place += f" · seed {run.seed}" if view.sweep.seeds > 1 else ""
    match run.state:
        case "running":
            return f"{place}: run {run.name}"
        case "pruned" if run.run_id:
            return f"{place}: pruned after step {run.step}, {result_text(view, run.result)}"
        case "pruned":
            return f"{place}: not started, since the trial is pruned"
        case "failed":
            return f"{place}: failed. {run.problem or ''}"
        case _:
            return f"{place}: finished, {result_text(view, run.result)}"


def result_text(view: SweepView, result: Interval | None) -> str:
    """Mean result with its 95 % interval, or a note that nothing was scored (None)."""
    if result is None:
        return "nothing scored"
    show = percent if view.metric == "validation/win_rate" else figure
    return f"{show(result.mean)} ({show(result.low)} to {show(result.high)})"


def table_text(view: SweepView) -> str:
    """Table of the trials, best first: finished ones, then pruned, then the others."""
    keys = list(view.space)
    shared = _common_section(keys)
    head = ["trial", *(key.removeprefix(shared) for key in keys), "result", "95 % interval"]
    rows = []
    for trial in _sorted(view.trials):
        mean, _, between = result_text(view, trial.result).partition(" (")
        known = trial.result is not None
        rows.append(
            [
                str(trial.number),
                *(value_text(trial.values[key]) for key in keys),
                mean if known else "–",
                between.removesuffix(")") if known else "",
                *(result_of(view, run) for run in trial.runs if view.sweep.seeds > 1),
                f"{sum(run.step for run in trial.runs)}/{sum(run.steps for run in trial.runs)}",
                trial.state,
            ]
        )
    seeds = [f"seed {run.seed}" for run in view.trials[0].runs] if view.trials else []
    head += [*(seeds if view.sweep.seeds > 1 else []), "steps", "state"]
    return table(head, rows)


def result_of(view: SweepView, run: SweepRun) -> str:
    """Result of one run (one seed of a trial), without interval; a dash without a result."""
    return result_text(view, run.result).partition(" (")[0] if run.result else "–"


def closing_text(view: SweepView) -> str:
    """Text printed after a sweep: table, best trial, savings, importance of settings and, for a
    sweep that is not over, how to resume it."""
    lines = [table_text(view), ""]
    lines.append(f"Result: {METRICS[view.metric]}.")
    if view.best is not None:
        lines.append(f"Best: trial {view.best}, {result_text(view, view.result)}.")
    if view.steps_saved:
        share = view.steps_saved / view.steps_planned
        lines.append(
            f"Pruning saved {view.steps_saved} of {view.steps_planned} steps ({percent(share)})."
        )
    if view.importance:
        shares = sorted(view.importance.items(), key=lambda item: -item[1])
        lines.append(
            "Importance: " + ", ".join(f"{key} {percent(share)}" for key, share in shares) + "."
        )
    cost = f", {view.cost_usd:.2f} US dollars" if view.cost_usd else ""
    lines.append(f"{_many(view.steps_done, 'step')} in {duration(view.seconds)}{cost}.")
    if view.state == "finished" and (run := _best_run(view)):
        lines.append(
            "The best of several results is an optimistic estimate; evaluate the checkpoint: "
            f"atelier eval {view.project_path} --model base --model {run.name}@best"
        )
    if view.problem:
        lines.append(f"{view.state.capitalize()}: {view.problem}")
    if view.state in ("paused", "stopped"):
        lines.append(f"Resume with: atelier sweep {view.project_path} --resume {view.name}")
    return "\n".join(lines)


def _best_run(view: SweepView) -> SweepRun | None:
    """Run with the best result of the best trial."""
    runs = next((trial.runs for trial in view.trials if trial.number == view.best), ())
    scored = [run for run in runs if run.result]
    return max(scored, key=lambda run: run.result.mean if run.result else 0.0, default=None)


def _pruning(plan: SweepPlan) -> str:
    if plan.sweep.prune == "none":
        return "none"
    if not plan.prune_at:
        return "none: there is no validation before the last step (train.validate_every)"
    steps = ", ".join(map(str, plan.prune_at))
    return f"successive halving, keeps the best 1/{plan.sweep.reduction_factor} after steps {steps}"


def _sorted(trials: Sequence[SweepTrial]) -> list[SweepTrial]:
    order = {"finished": 0, "pruned": 1, "running": 2, "failed": 3, "waiting": 4}
    return sorted(
        trials, key=lambda t: (order[t.state], -t.result.mean if t.result else 0.0, t.number)
    )


def _common_section(keys: Sequence[str]) -> str:
    """Section that all keys share, with its dot."""
    sections = {key.rpartition(".")[0] for key in keys}
    return f"{sections.pop()}." if len(sections) == 1 else ""


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
