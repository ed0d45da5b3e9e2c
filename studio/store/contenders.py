"""The rows of the Checkpoints page, out of what is known of a run. Pure."""

from collections.abc import Sequence

from engine.protocol.records import Interval, KeptCheckpoint
from studio.store.run_state import RunState


def best_of(kept: Sequence[KeptCheckpoint]) -> int | None:
    """The step with the highest validation mean, the earlier of equals; None without a test."""
    tested = [one for one in kept if one.validation is not None and one.state == "whole"]
    best = min(tested, key=lambda one: (-_mean(one), one.checkpoint.step), default=None)
    return best.checkpoint.step if best else None


def marks_of(kept: Sequence[KeptCheckpoint], step: int) -> tuple[str, ...]:
    """`best` and `newest`, where they hold."""
    newest = max(one.checkpoint.step for one in kept)
    found = ["best"] if step == best_of(kept) else []
    return (*found, *(["newest"] if step == newest else []))


def metric_at(state: RunState, name: str, step: int) -> float | None:
    """A step's metric; None where it has none."""
    for record in reversed(state.steps):
        if record.step == step:
            return record.metrics.get(name)
    return None


def baseline_of(state: RunState) -> Interval | None:
    """The test before any step."""
    return next((record.reward for record in state.validations if record.step == 0), None)


def export_sizes(state: RunState, kept: KeptCheckpoint | None) -> dict[str, float]:
    """Bytes by format, as far as they are known before: two a parameter, four in an adapter, whose
    checkpoint holds two moments beside it."""
    sizes = {"adapter": kept.checkpoint.bytes / 3} if kept else {}
    if state.parameters:
        whole = 2.0 * (state.parameters - state.trainable)
        sizes |= {"merged": whole, "gguf": whole}
    return sizes


def _mean(one: KeptCheckpoint) -> float:
    return one.validation.mean if one.validation else float("-inf")
