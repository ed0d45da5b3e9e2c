"""Base class of all events."""

from pydantic import BaseModel, ConfigDict


class BaseEvent(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    run_id: str = ""
    seq: int | None = None
    at: float = 0.0
    """Unix time in seconds, on the engine's clock."""
