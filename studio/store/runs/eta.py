"""Remaining time of a run, estimated from its steps and validations. Free of I/O."""

from collections.abc import Sequence
from statistics import median

from studio.store.runs.parts import StepRecord
from studio.store.runs.state import RunState

RECENT = 8


def step_seconds(steps: Sequence[StepRecord]) -> float | None:
    """Return the median duration in seconds of the last 8 steps; None before the first."""
    recent = [record.seconds for record in steps[-RECENT:] if record.seconds > 0]
    return median(recent) if recent else None


def validation_seconds(state: RunState) -> float:
    """Return the median duration of the last three validations; 0 without any."""
    recent = [record.seconds for record in state.validations[-3:]]
    return median(recent) if recent else 0.0


def validations_left(state: RunState) -> int:
    """Return the number of remaining validations: every `validate_every` steps, and after the last
    step. 0 if the run has not validated yet."""
    if state.spec is None or not state.validations:
        return 0
    every = state.spec.config.train.validate_every
    last = state.validations[-1].step
    regular = state.planned // every - last // every if every else 0
    ends_between = not every or state.planned % every != 0
    return max(0, regular) + int(ends_between and last < state.planned)


def remaining_seconds(state: RunState, now: float) -> float | None:
    """Estimate the seconds until the run ends; None while unknown or after its end. `now` is the
    engine's clock (Unix seconds). Time spent in the current step counts as done, up to the usual
    duration of a step."""
    usual = step_seconds(state.steps)
    if usual is None or not state.active or not state.planned:
        return None
    under_way = state.step > state.done and state.status not in ("paused", "reviewing")
    spent = min(usual, max(0.0, now - state.step_at)) if under_way else 0.0
    steps = (state.planned - state.done) * usual - spent
    return max(0.0, steps) + validations_left(state) * validation_seconds(state)


PHASES = ("rolling_out", "training", "publishing")


def usual_phases(state: RunState) -> dict[str, float]:
    """Return the median duration of each phase in the last 8 steps: phase → seconds."""
    return {
        phase: median(values)
        for phase in PHASES
        if (values := [v for v in _recent(state, f"time_s/{phase}") if v >= 0])
    }


def usual_switch(state: RunState) -> float | None:
    """Return the usual seconds to switch the GPU between sampler and trainer; None if it was not
    measured."""
    values = _recent(state, "time_s/switch")
    return median(values) if values else None


def _recent(state: RunState, name: str) -> Sequence[float]:
    series = state.series.get(name)
    return series.ys[-RECENT:] if series else ()
