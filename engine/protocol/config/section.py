"""Base class of the tables of `project.toml`."""

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """Table of `project.toml`. Unknown keys are errors."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False
    )
