"""Estimates of what a run will take, before it starts."""

from engine.protocol.base import Value
from engine.protocol.records.machine.hardware import VramPlan


class JudgeForecast(Value):
    """Estimated judge calls of a run before it starts, over all judge models."""

    calls_low: int
    """Calls if two passes over each group agree, or if a local judge scores routine steps."""
    calls_high: int
    """Calls if every group needs all passes."""
    validation_calls: int
    """Part of `calls_low` that compares validations."""
    usd_low: float | None
    """Cost in US dollars of `calls_low`, by the mean cost of a call of these judges in the newest
    run of the project; None if they have judged no run yet."""
    usd_high: float | None
    budget_usd: float | None
    """Judge budget of the run; None: no limit."""


class Forecast(Value):
    """Estimated memory, disk space and time of a run before it starts."""

    weights_bytes: int
    """Weights of the model, and the program that runs it, in bytes."""
    sampler_bytes: int
    """KV cache of the concurrently sampled rollouts, in bytes."""
    adapter_bytes: int
    """Adapter, gradients and optimizer state, in bytes."""
    activations_bytes: int
    available_bytes: int
    step_low_s: float
    step_high_s: float
    steps: int
    disk_bytes: int | None = 0
    """Size in bytes of all checkpoints that the retention rules keep at the end; None if the
    model's weights, which tell the size of an adapter, are not on this machine."""
    disk_free_bytes: int = 0
    kept: int = 0
    """Number of those checkpoints."""
    measured: bool
    """True if step times come from an earlier run of this project on this machine."""
    vram: VramPlan | None = None
    """GPU memory plan; None for a run without GPUs."""
    judge: JudgeForecast | None = None
    """Judge calls and their cost; None without a judge model."""
