"""Base classes of everything on the wire."""

from pydantic import BaseModel, ConfigDict


class Value(BaseModel):
    """Frozen record or response. Unknown keys are ignored, so that an older reader understands a
    newer writer; a number that is not finite is refused where the value is made."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class Request(BaseModel):
    """Body of a request. Unknown keys are errors: they are misspelled or not supported."""

    model_config = ConfigDict(extra="forbid")
