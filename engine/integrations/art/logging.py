"""Forwarding of ART's `model.log`, which only writes files and calls no backend: the logged groups,
and the row of metrics that ART appended to history.jsonl."""

import json
import math
import os
import warnings
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import Any

from engine.integrations.art.serialization import left_out
from engine.protocol.records.art_names import NAMES, art_metrics

LONGEST_ROW = 2**20
STEPS = ("step", "training_step", "recorded_at")

Tell = Callable[[Any, str, int, list[Any], dict[str, float]], Awaitable[None]]
"""Callback with model, split, step, groups and metrics."""
Row = tuple[str, int, dict[str, float]]
"""Split, step, and metrics by name."""


def forward_logs(model: Any, tell: Tell) -> None:
    """Patch `log` of an ART model to also call `tell` with split, step, groups and metrics that it
    logged. Safe to call again."""
    kind = type(model)

    def log_metrics(metrics: dict[str, float], split: str, step: int) -> None:
        kind._log_metrics(model, metrics, split, step)
        row = last_row(f"{model._get_output_dir()}/history.jsonl")
        written.get().append((split, step, row))

    async def log(
        trajectories: Any = None,
        split: str = "val",
        *,
        metrics: dict[str, float] | None = None,
        step: int | None = None,
    ) -> None:
        given = list(trajectories) if trajectories is not None else None
        rows: list[Row] = []
        before = written.set(rows)
        try:
            await kind.log(model, given, split, metrics=metrics, step=step)
        finally:
            written.reset(before)
        groups = model._normalize_trajectory_groups(given) if given else []
        for place, (row_split, row_step, values) in enumerate(rows):
            finite = {name: value for name, value in values.items() if math.isfinite(value)}
            for words in left_out(sorted(values.keys() - finite.keys())):
                warnings.warn(words, UserWarning, stacklevel=2)
            await tell(model, row_split, row_step, groups if place == 0 else [], finite)

    written: ContextVar[list[Row]] = ContextVar("written")
    """Rows that the current call of `model.log` has written; a context variable, since a script may
    run several calls at once."""
    # pydantic lets nobody set what is no field; ART sets its own private state in the same way
    object.__setattr__(model, "_log_metrics", log_metrics)
    object.__setattr__(model, "log", log)


def last_row(file: str) -> dict[str, float]:
    """Numeric metrics in the last line of the history.jsonl `file`, without step numbers and
    metrics that came from Atelier. ART omits non-numbers but keeps infinite values."""
    with open(file, "rb") as history:
        history.seek(0, os.SEEK_END)
        history.seek(max(0, history.tell() - LONGEST_ROW))
        line = history.read().rstrip(b"\n").rpartition(b"\n")[2]
    return {
        name: float(value)
        for name, value in json.loads(line).items()
        if name not in STEPS and f"/{OWN}/" not in name
    }


OURS_TO_SAY = ("loss/", "throughput/", "data/step_trainer_tokens", "time/step_trainer_s")
"""Prefixes of ART's metric names that the backend has to supply. ART computes the others from the
trajectories."""
GRADIENT_STEPS = "data/step_num_gradient_steps"
OWN = "atelier"
"""Namespace for metrics without a counterpart in ART."""


def training_metrics(ours: Mapping[str, float], skipped: bool, updates: int) -> dict[str, float]:
    """Metrics of a step for ART, from Atelier's (`ours`): under ART's names if they exist, else
    under `atelier/`. The number of gradient steps is `updates`, or 0 if the step was `skipped`."""
    known = {
        name: value for name, value in art_metrics(ours).items() if name.startswith(OURS_TO_SAY)
    }
    mapped_names = {name.ours[0] for name in NAMES if name.art in known and not name.how}
    others = {f"{OWN}/{name}": value for name, value in ours.items() if name not in mapped_names}
    return {**known, **others, GRADIENT_STEPS: 0.0 if skipped else float(updates)}
