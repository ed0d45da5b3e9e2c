"""Custom fields of labels: values that a person states about a trajectory, besides its rank."""

import re
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from engine.protocol.base import Section

NAME = re.compile(r"[A-Za-z][\w-]{0,39}")
CHOICE = re.compile(r"[\w-][\w .-]{0,38}[\w.-]|[\w-]")
FieldValue = float | str


class LabelField(Section):
    """Custom field of labels."""

    kind: Literal["choice", "number", "text"]
    """`choice`: one of `choices`; `number`: between `low` and `high`; `text`: free text."""
    choices: tuple[str, ...] = ()
    """Possible values of a choice, lowest first: as a reward part, the first counts 0, the last 1.
    """
    low: float | None = None
    """Lowest value of a number."""
    high: float | None = None
    """Highest value of a number."""
    question: Annotated[str, Field(max_length=80)] = ""
    """Question shown when the value is asked for; the field's name when empty."""

    @model_validator(mode="after")
    def _check_kind(self) -> "LabelField":
        if self.kind == "choice":
            wrong = [one for one in self.choices if not CHOICE.fullmatch(one)]
            if wrong:
                raise ValueError(
                    f"has the choice {wrong[0]!r}: write 1 to 40 letters, digits, spaces, . _ or -"
                )
            if len(self.choices) < 2 or len(set(self.choices)) < len(self.choices):
                raise ValueError("needs at least two different choices")
        elif self.choices:
            raise ValueError(f'has choices, but its kind is {self.kind}: write kind = "choice"')
        if self.kind == "number":
            if self.low is None or self.high is None or self.low >= self.high:
                raise ValueError("needs low and high, with low below high")
        elif self.low is not None or self.high is not None:
            raise ValueError(f'has low or high, but its kind is {self.kind}: write kind = "number"')
        return self

    @property
    def may_be_part(self) -> bool:
        """Whether the values are numbers or ordered choices, and can be a reward part."""
        return self.kind != "text"

    def problem_of(self, value: FieldValue) -> str:
        """Sentence on why a value is invalid; empty if it is valid."""
        if self.kind == "number":
            valid = isinstance(value, float) and self._low <= value <= self._high
            return "" if valid else f"Enter a number from {self._low:g} to {self._high:g}."
        if self.kind == "choice":
            return "" if value in self.choices else f"Choose one of: {', '.join(self.choices)}."
        return "" if isinstance(value, str) and value.strip() else "Enter some text."

    def scaled(self, value: FieldValue) -> float:
        """Valid value of a number or choice as a reward part in [0, 1]: linear from `low` to
        `high`, or from the first to the last choice."""
        if isinstance(value, str):
            return self.choices.index(value) / (len(self.choices) - 1)
        return (value - self._low) / (self._high - self._low)

    @property
    def _low(self) -> float:
        assert self.low is not None
        return self.low

    @property
    def _high(self) -> float:
        assert self.high is not None
        return self.high


class LabelsConfig(Section):
    """Human labels."""

    fields: dict[str, LabelField] = Field(default_factory=dict)
    """Custom fields by name: `[labels.fields.tone]` with `kind = "choice"` and `choices = ["rude",
    "neutral", "kind"]`. Numbers and choices become metrics; with a weight for `label/NAME` under
    reward.weights they become reward parts."""

    @field_validator("fields")
    @classmethod
    def _check_names(cls, fields: dict[str, LabelField]) -> dict[str, LabelField]:
        for name in fields:
            if not NAME.fullmatch(name):
                raise ValueError(
                    f"has a field named {name!r}: begin with a letter, then up to 39 letters, "
                    "digits, _ or -"
                )
        return fields
