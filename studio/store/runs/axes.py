"""Positions of the steps of a run on the x axis of charts."""

from studio.store.runs.state import RunState

AXES = ("step", "time", "tokens")


def positions(state: RunState, axis: str) -> dict[int, float]:
    """Return where steps end on an x axis, as step → value: seconds of training for the axis
    `time`, else sampled tokens. Empty for the axis `step`, where a step's position is its number.
    Pauses and interruptions take no room."""
    if axis == "step" or not state.steps:
        return {}
    total, found = 0.0, {0: 0.0}
    for record in state.steps:
        if axis == "time":
            total = record.trained_s
        else:
            mean = record.metrics.get("tokens/completion_mean", 0.0)
            total += mean * record.metrics.get("trajectories", 0.0)
        found[record.step] = total
    return found
