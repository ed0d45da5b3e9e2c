"""Conversion of stored events into items for a tracker: metrics by step, and run states. Pure."""

import math
import re
from collections.abc import Mapping
from typing import Any

from engine.protocol.config.flat import flat_values
from engine.protocol.events.run import (
    Event,
    MetricsLogged,
    RunFailed,
    RunFinished,
    RunStarted,
    RunStopped,
    StepFinished,
    UnknownEvent,
    ValidationFinished,
)
from engine.protocol.events.sft import LossMeasured
from engine.protocol.records.art_names import art_metrics
from engine.protocol.records.runs import RunSpec

Item = dict[str, Any]
"""`seq`, `at` (Unix seconds), and either `step` and `values`, or `state`, or `spans` of one
trajectory."""

STATES = ("run.started", "run.stopped", "run.failed", "run.finished")
DATA_KINDS = ("step.finished", "validation.finished", "loss.measured", "metrics.logged")
METRIC_KINDS = (*DATA_KINDS, *STATES)
TRACE_KINDS = ("group.scored",)
CREDENTIALS = re.compile(r"//[^/@\s]+@")
"""User and password in a URL."""


def row_of(event: Event | UnknownEvent) -> Item | None:
    """Values or run state that an event sends to a tracker; None if it sends nothing."""
    item = {"seq": event.seq, "at": event.at}
    match event:
        case StepFinished():
            return {**item, "step": event.step, "values": named(event.metrics)}
        case ValidationFinished():
            return {**item, "step": event.step, "values": named(validation(event))}
        case LossMeasured():
            values = {"validation/loss": event.loss, "validation/tokens": float(event.tokens)}
            return {**item, "step": event.step, "values": values}
        case MetricsLogged():
            values = {f"script/{event.split}/{name}": v for name, v in event.values.items()}
            return {**item, "step": event.step, "values": values}
        case RunStarted():
            return {**item, "state": "running"}
        case RunFinished():
            return {**item, "state": "finished"}
        case RunFailed():
            return {**item, "state": "failed", "words": str(event.problem)}
        case RunStopped():
            return {**item, "state": "stopped", "words": event.reason}
        case _:
            return None


def named(ours: Mapping[str, float]) -> dict[str, float]:
    """Metrics under Atelier's names (`ours`) and, where they exist, also under ART's."""
    return {**art_metrics(ours), **ours}


def validation(event: ValidationFinished) -> dict[str, float]:
    """Return the metrics of a validation: reward, and win rate against the first validation, with
    95% intervals, where they are known."""
    values = {"validation/unscored": float(event.unscored), "validation/seconds": event.seconds}
    if event.reward is not None:
        values |= {
            "validation/reward": event.reward.mean,
            "validation/low": event.reward.low,
            "validation/high": event.reward.high,
            "validation/scenarios": float(event.reward.count),
        }
    if rate := event.win_rates.get(event.step):
        values |= {
            "validation/win_rate": rate.mean,
            "validation/win_rate_low": rate.low,
            "validation/win_rate_high": rate.high,
        }
    values |= {f"validation/criterion/{name}": one.mean for name, one in event.criteria.items()}
    return {key: value for key, value in values.items() if math.isfinite(value)}


class StepFilter:
    """Filter that passes each step once. An interrupted run repeats its last steps with the same
    trajectories, and services cannot replace what they have."""

    def __init__(self) -> None:
        self._known: set[int] = set()

    def new(self, event: Event | UnknownEvent) -> bool:
        if not isinstance(event, StepFinished):
            return True
        if event.step in self._known:
            return False
        self._known.add(event.step)
        return True


def settings_of(spec: RunSpec) -> dict[str, str | int | float | bool]:
    """Return the settings of a run by dotted key, without empty values and without those of the
    trackers. Credentials in URLs are removed."""
    config = spec.config.model_dump(mode="json", exclude={"track"}, exclude_none=True)
    about = {
        "run": {"id": spec.id, "name": spec.name, "kind": spec.kind},
        "versions": spec.versions,
    }
    return {
        name: shown
        for name, value in flat_values({**config, **about})
        if (shown := _shown(value)) != ""
    }


def _shown(value: Any) -> str | int | float | bool:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return CREDENTIALS.sub("//", value) if isinstance(value, str) else value
