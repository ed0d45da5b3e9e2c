"""`model.log` of ART writes files and calls no backend. What it has written is told from here: the
groups as they were given to it, and the row of figures as it stands in history.jsonl."""

import json
import os
from collections.abc import Awaitable, Callable
from typing import Any

from engine.art.figures import OWN

LONGEST_ROW = 2**20
STEPS = ("step", "training_step", "recorded_at")

Tell = Callable[[Any, str, int, list[Any], dict[str, float]], Awaitable[None]]
"""Model, split, step, groups, figures."""


def tell_of_logs(model: Any, tell: Tell) -> None:
    """From now on every `await model.log(…)` also tells. Again changes nothing."""
    kind = type(model)

    def log_metrics(metrics: dict[str, float], split: str, step: int) -> None:
        kind._log_metrics(model, metrics, split, step)
        rows.append((split, step, last_row(f"{model._get_output_dir()}/history.jsonl")))

    async def log(
        trajectories: Any = None,
        split: str = "val",
        *,
        metrics: dict[str, float] | None = None,
        step: int | None = None,
    ) -> None:
        given = list(trajectories) if trajectories is not None else None
        await kind.log(model, given, split, metrics=metrics, step=step)
        groups = model._normalize_trajectory_groups(given) if given else []
        logged, rows[:] = list(rows), []
        for place, (row_split, row_step, values) in enumerate(logged):
            await tell(model, row_split, row_step, groups if place == 0 else [], values)

    rows: list[tuple[str, int, dict[str, float]]] = []
    # pydantic lets nobody set what is no field; ART sets its own private state in the same way
    object.__setattr__(model, "_log_metrics", log_metrics)
    object.__setattr__(model, "log", log)


def last_row(file: str) -> dict[str, float]:
    """The figures of the newest line, but for the step and what the engine itself has said."""
    with open(file, "rb") as history:
        history.seek(0, os.SEEK_END)
        history.seek(max(0, history.tell() - LONGEST_ROW))
        line = history.read().rstrip(b"\n").rpartition(b"\n")[2]
    return {
        name: float(value)
        for name, value in json.loads(line).items()
        if name not in STEPS and f"/{OWN}/" not in name
    }
