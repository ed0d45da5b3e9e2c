"""Estimates of what a run will take, before it starts."""

from engine.protocol.base import Value


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
