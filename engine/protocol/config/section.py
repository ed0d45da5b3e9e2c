"""What every table of `project.toml` is: typed, frozen, without keys that nobody knows."""

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """One table of `project.toml`. Unknown keys are errors."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False
    )
