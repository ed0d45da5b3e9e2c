"""Requests about sweeps."""

from typing import Annotated, Any, Literal

from pydantic import Field

from engine.protocol.base import Request


class StartSweep(Request):
    """Start the sweep in `[sweep]` of a project; it waits while another run uses the device."""

    project: str
    overrides: dict[str, Any] = Field(default_factory=dict)
    """Overrides by dotted key of project.toml: {"sweep.trials": 6, "train.steps": 20}."""
    host: str = ""
    """Local name of a server. Sweeps run on the engine's own machine only: any name is refused."""
    key: str = ""
    """Idempotency key: the same key starts one sweep, however often it is sent."""


class ActOnSweep(Request):
    """Control a sweep. `pause` stops its active run after the current step and `stop` at once;
    `resume` continues either, and tries failed runs at the end of the list again."""

    action: Literal["pause", "resume", "stop"]
    budget_hours: Annotated[float, Field(gt=0)] | None = None
    """For `resume`: new time budget in hours; None keeps it."""
    budget_usd: Annotated[float, Field(gt=0)] | None = None
    """For `resume`: new budget in US dollars; None keeps it."""
