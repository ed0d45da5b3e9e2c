"""Problems and exceptions: what happened, where, and what to do."""

import re
from typing import Self

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

SURROGATES = re.compile("[\ud800-\udfff]")


def readable(text: str) -> str:
    """Replace every lone surrogate with U+FFFD. Python uses them for bytes of a file name that are
    not UTF-8, JSON for half of an escaped pair."""
    return SURROGATES.sub("\ufffd", text)


class Problem(BaseModel):
    """Error for display: what happened, where, and what to do."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    code: str
    """Stable dotted identifier for programs: `config.unknown_key`, `agent.timeout`."""
    message: str
    """Description of what happened and why, in one sentence."""
    hint: str = ""
    """Suggested action; empty if nothing helps."""
    where: str = ""
    """Location: file and line, config key, or trajectory."""
    detail: str = ""
    """Traceback or raw text, shown on request."""

    @field_validator("message", "hint", "where", "detail", mode="before")
    @classmethod
    def _replace_surrogates(cls, text: object) -> object:
        """Replace surrogates of undecodable file names, which cannot be encoded as JSON."""
        return readable(text) if isinstance(text, str) else text

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        return f"{place}{self.message}" + (f" {self.hint}" if self.hint else "")


def first_invalid(error: ValidationError) -> str:
    """Describe the first invalid field of a value: `steps: Input should be …`."""
    found = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place = ".".join(str(part) for part in found["loc"])
    return f"{ascii(place[:100])[1:-1]}: {found['msg'][:200]}" if place else found["msg"][:200]


class AtelierError(Exception):
    """Base class of all exceptions that the engine raises deliberately; carries a Problem."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem

    @classmethod
    def of(cls, code: str, message: str, hint: str = "", where: str = "", detail: str = "") -> Self:
        return cls(Problem(code=code, message=message, hint=hint, where=where, detail=detail))


class ConfigError(AtelierError):
    """Invalid project or setting; raised before anything starts."""


class ModelError(AtelierError):
    """Model folder that is missing, unsafe, or of a kind that cannot be trained."""


class RolloutError(AtelierError):
    """Failure of the agent or of its gateway requests; the trajectory is unscored."""


class PolicyError(AtelierError):
    """Failure of the policy worker while loading, sampling, training or publishing."""


class StoreError(AtelierError):
    """Run folder that cannot be read or written."""


class LaunchError(AtelierError):
    """Engine that cannot be found, started or verified."""


class Refused(AtelierError):
    """Valid request that cannot be granted now."""


MOST_LINE_CHARS = 300


def in_one_line(error: Exception) -> str:
    """Shorten an exception to part of a sentence: its first line, or the first pydantic error with
    its location."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        text = f"{place}: {first['msg']}" if place else first["msg"]
    else:
        text = next(iter(str(error).splitlines()), "") or type(error).__name__
    return text[:MOST_LINE_CHARS].rstrip(".")
