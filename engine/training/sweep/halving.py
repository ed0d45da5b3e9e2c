"""Asynchronous successive halving: which trials continue after a validation. Pure.

A trial is compared with all trials that have reached the same validation, at the moment it reaches
it (ASHA, 1810.05934, in the stopping variant that optuna and Ray Tune use), so that runs are never
stopped to wait for others and the order of the trials is free.
"""

from collections.abc import Sequence

from engine.protocol.config.project import ProjectConfig


def decision_steps(config: ProjectConfig) -> tuple[int, ...]:
    """Steps after which successive halving decides: those of the validations with numbers f, f·k,
    f·k² … before the last step (f: sweep.first_validation, k: sweep.reduction_factor); empty
    without pruning."""
    sweep, train = config.sweep, config.train
    if sweep.prune == "none" or not train.validate_every:
        return ()
    steps = []
    number = sweep.first_validation
    while (step := number * train.validate_every) < train.steps:
        steps.append(step)
        number *= sweep.reduction_factor
    return tuple(steps)


def continues(value: float, others: Sequence[float], factor: int) -> bool:
    """Whether a trial with `value` at a validation is among the best 1/`factor` of all trials that
    reached it; `others` are the results of the other ones there. At least the best continues, and
    so does a trial that equals it."""
    ordered = sorted([value, *others], reverse=True)
    kept = max(1, len(ordered) // factor)
    return value >= ordered[kept - 1]
