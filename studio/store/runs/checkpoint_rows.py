"""Rows of the Checkpoints page. Free of I/O."""

from collections.abc import Sequence

from engine.protocol.records.comparison import EQUAL
from engine.protocol.records.runs import Interval, KeptCheckpoint
from studio.store.runs.state import RunState

WIDTHS = {"float32": 4.0, "float16": 2.0, "bfloat16": 2.0, "q8_0": 34 / 32}
"""Bytes per parameter; a block of q8_0 has 32 bytes and a scale."""


def best_of(kept: Sequence[KeptCheckpoint], remote: bool = False) -> int | None:
    """Return the step of the best checkpoint: highest win rate, or if none has one, highest
    validation mean or lowest held-out loss; the earlier of equals. None without a validation.
    `remote`: count checkpoints too whose files are not on this machine."""
    usable = [one for one in kept if remote or one.state == "whole"]
    compared = [one for one in usable if one.win_rate is not None]
    tested = [one for one in usable if one.validation is not None or one.loss is not None]
    known = compared or tested
    best = min(known, key=lambda one: (-_mean(one), one.checkpoint.step), default=None)
    return best.checkpoint.step if best else None


def marks_of(kept: Sequence[KeptCheckpoint], step: int, remote: bool = False) -> tuple[str, ...]:
    """Return the marks of a step's checkpoint: `best`, `newest`; `remote` as for `best_of`."""
    newest = max(one.checkpoint.step for one in kept)
    marks = ["best"] if step == best_of(kept, remote) else []
    return (*marks, *(["newest"] if step == newest else []))


def metric_at(state: RunState, name: str, step: int) -> float | None:
    """Return the value of a metric at a step; None if missing."""
    for record in reversed(state.steps):
        if record.step == step:
            return record.metrics.get(name)
    return None


def baseline_of(state: RunState) -> Interval | None:
    """Return the validation reward before the first step, or if a judge compares validations, the
    win rate of equal models (0.5); None if it was not measured."""
    if state.win_rates:
        count = max(rate.count for rate in state.win_rates.values())
        return Interval(mean=EQUAL, low=EQUAL, high=EQUAL, count=count)
    return next((record.reward for record in state.validations if record.step == 0), None)


def export_sizes(state: RunState, kept: KeptCheckpoint | None) -> dict[str, float]:
    """Estimate export sizes: format and precision ("gguf q8_0") → bytes; without a checkpoint
    (`kept`) no adapter. A checkpoint stores two optimizer moments besides the adapter, hence a
    third of it."""
    sizes = {"adapter": kept.checkpoint.bytes / 3} if kept else {}
    if whole := float(state.parameters - state.trainable):
        for format_name in ("merged", "gguf"):
            for dtype, width in WIDTHS.items():
                sizes[f"{format_name} {dtype}"] = whole * width
        sizes["gguf"] = whole * 2
    return sizes


def _mean(one: KeptCheckpoint) -> float:
    if found := one.win_rate or one.validation:
        return found.mean
    return float("-inf") if one.loss is None else -one.loss
