"""Alerts of a run: which of its conditions hold after a step or a validation. Pure."""

import math
from collections.abc import Sequence
from statistics import NormalDist, fmean, stdev

from engine.protocol.config.alerts import UNSCORED, VALIDATION, Condition
from engine.protocol.events.run import ValidationFinished
from engine.protocol.records.runs import Alert, Interval

Metrics = dict[str, float]
USUAL_Z = NormalDist().inv_cdf(0.975)
LEAST_SCENARIOS = 5
"""Minimum number of scenarios for which the normal approximation of a mean is used."""


def alerts(
    conditions: Sequence[Condition],
    history: dict[int, Metrics],
    validations: Sequence[ValidationFinished],
) -> list[Alert]:
    """Return one alert for each condition that holds after the newest step of `history` (metrics by
    finished step) or the last of `validations` (oldest first). A condition on a metric without a
    value does not hold."""
    found = []
    for condition in conditions:
        if condition.metric == VALIDATION:
            words = _of_validations(condition, validations)
        else:
            words = _of_steps(condition, history)
        if words:
            found.append(Alert(condition=condition.text, words=words))
    return found


def _of_steps(condition: Condition, history: dict[int, Metrics]) -> str:
    values = [
        (step, value)
        for step in sorted(history)
        if (value := _value(condition, history[step])) is not None
    ]
    if not values or values[-1][0] != max(history):
        return ""
    step, last = values[-1]
    limit = condition.limit or 0.0
    if condition.kind in ("falls", "rises"):
        earlier = [value for _, value in values[:-1]]
        return _moved(condition, f"step {step}", earlier, last)
    latest = values[-condition.steps :]
    steps = [place for place, _ in latest]
    if len(latest) < condition.steps or steps[-1] - steps[0] != condition.steps - 1:
        return ""
    beyond = [value > limit if condition.kind == "above" else value < limit for _, value in latest]
    if not all(beyond):
        return ""
    since = f"steps {steps[0]} to {step}" if condition.steps > 1 else f"step {step}"
    side = "above" if condition.kind == "above" else "below"
    name = "Unscored trajectories" if condition.metric == UNSCORED else condition.metric
    now, bound = _number(condition, last), _number(condition, limit)
    return f"{name}: {now} in {since}, {side} {bound}."


def _value(condition: Condition, metrics: Metrics) -> float | None:
    value = metrics.get(condition.metric)
    if value is None or condition.metric != UNSCORED or not condition.percent:
        return value
    total = metrics.get("trajectories")
    return value / total if total else None


def _of_validations(condition: Condition, validations: Sequence[ValidationFinished]) -> str:
    if not validations:
        return ""
    last = validations[-1]
    relative = bool(last.win_rates)
    means = dict(last.win_rates) if relative else _rewards(validations)
    if last.step not in means:
        return ""
    name = "Win rate in validation" if relative else "Validation reward"
    now = means.pop(last.step)
    earlier = list(means.values())
    place = f"step {last.step}"
    if condition.kind in ("above", "below"):
        limit = condition.limit or 0.0
        beyond = now.mean > limit if condition.kind == "above" else now.mean < limit
        value, bound = _number(condition, now.mean), _number(condition, limit)
        return f"{name}: {value} after {place}, {condition.kind} {bound}." if beyond else ""
    if condition.limit is not None:
        return _moved(condition, place, [one.mean for one in earlier], now.mean)
    if not earlier:
        return ""
    falls = condition.kind == "falls"
    ends = max if falls else min
    best = ends(means, key=lambda step: means[step].mean)
    if relative:
        change, error = now.mean - means[best].mean, (now.high - now.low) / (2 * USUAL_Z)
    else:
        before = next(one for one in validations if one.step == best)
        change, error = _paired(last, before)
    certain = _is_certain(change if falls else -change, error, len(earlier))
    verb = "fell" if falls else "rose"
    return (
        f"{name} {verb} from {means[best].mean:.2f} after step {best} to {now.mean:.2f} after "
        f"{place}, a statistically significant change."
        if certain
        else ""
    )


def _is_certain(change: float, error: float, count: int) -> bool:
    """Whether a change from the best of `count` earlier validations is a fall at the 5 % level.
    `error`: its standard error. Bonferroni's correction: the best of many is high by chance."""
    return change + NormalDist().inv_cdf(1 - 0.025 / count) * error < 0


def _rewards(validations: Sequence[ValidationFinished]) -> dict[int, Interval]:
    return {one.step: one.reward for one in validations if one.reward is not None}


def _paired(now: ValidationFinished, before: ValidationFinished) -> tuple[float, float]:
    """Mean change of the reward per scenario and its standard error, over scenarios that both have
    scored; the error of fewer than `LEAST_SCENARIOS` is infinite."""
    both = [name for name in now.scenarios if name in before.scenarios]
    changes = [now.scenarios[name] - before.scenarios[name] for name in both]
    if len(changes) < LEAST_SCENARIOS:
        return 0.0, math.inf
    return fmean(changes), stdev(changes) / math.sqrt(len(changes))


def _moved(condition: Condition, place: str, earlier: Sequence[float], last: float) -> str:
    """Return the alert text if a value has moved by the limit from its best one so far."""
    if not earlier:
        return ""
    falls = condition.kind == "falls"
    best = max(earlier) if falls else min(earlier)
    limit = condition.limit or 0.0
    needed = abs(best) * limit if condition.percent else limit
    change = best - last if falls else last - best
    if change < needed or change <= 0:
        return ""
    end, verb = ("highest", "fell") if falls else ("lowest", "rose")
    return f"{condition.metric} {verb} to {last:.4g} in {place}; its {end} value was {best:.4g}."


def _number(condition: Condition, value: float) -> str:
    return f"{value:.1%}".replace("%", " %") if condition.percent else f"{value:.4g}"
