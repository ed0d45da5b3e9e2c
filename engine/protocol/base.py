"""Base classes of records and requests on the wire."""

from pydantic import BaseModel, ConfigDict


class Value(BaseModel):
    """Frozen record or response.

    Unknown keys are ignored, so that an older reader understands a newer writer. Numbers that are
    not finite raise ValidationError on construction.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class Request(BaseModel):
    """Body of a request. Unknown keys are errors: misspelled or not supported."""

    model_config = ConfigDict(extra="forbid")


class Section(BaseModel):
    """Table of `project.toml`. Unknown keys are errors."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False
    )


class BaseEvent(Value):
    """Event of a run."""

    run_id: str = ""
    seq: int | None = None
    at: float = 0.0
    """Unix time in seconds, on the engine's clock."""
