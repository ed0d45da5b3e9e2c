"""How anything that is wrong is said: what, where, what to try. One shape from store to screen."""

import re
from typing import Self

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

SURROGATES = re.compile("[\ud800-\udfff]")


def readable(text: str) -> str:
    """Text with U+FFFD for every lone surrogate: Python has them for bytes of a file name that are
    not UTF-8, and JSON for half of an escaped pair."""
    return SURROGATES.sub("\ufffd", text)


class Problem(BaseModel):
    """One clear sentence, and what helps."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    code: str
    """Stable, dotted, for programs: `config.unknown_key`, `agent.timeout`."""
    message: str
    """What happened and why, in one sentence for people."""
    hint: str = ""
    """What to try; empty where nothing helps."""
    where: str = ""
    """File and line, config key, or trajectory: the place to look."""
    detail: str = ""
    """Traceback or raw text, shown on request."""

    @field_validator("message", "hint", "where", "detail", mode="before")
    @classmethod
    def _can_be_sent(cls, text: object) -> object:
        """File names that are not UTF-8 hold characters that no JSON can."""
        return readable(text) if isinstance(text, str) else text

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        return f"{place}{self.message}" + (f" {self.hint}" if self.hint else "")


class AtelierError(Exception):
    """Base of everything the engine raises on purpose; carries the problem it is about."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem

    @classmethod
    def of(cls, code: str, message: str, hint: str = "", where: str = "", detail: str = "") -> Self:
        return cls(Problem(code=code, message=message, hint=hint, where=where, detail=detail))


class ConfigError(AtelierError):
    """A project or a setting is wrong; nothing has started."""


class ModelError(AtelierError):
    """A model folder is missing, unsafe, or of a kind that cannot be trained."""


class RolloutError(AtelierError):
    """The agent, or what it asked of the gateway, failed: the trajectory is unscored."""


class PolicyError(AtelierError):
    """The policy worker failed: loading, sampling, training or publishing."""


class StoreError(AtelierError):
    """A run folder cannot be read or written."""


class LaunchError(AtelierError):
    """An engine cannot be found, started or proven."""


class Refused(AtelierError):
    """A request that is understood and cannot be granted now."""


MOST_LINE_CHARS = 300


def in_one_line(error: Exception) -> str:
    """An exception as part of a sentence: its first line, or the first thing that pydantic found
    wrong, with its place."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        text = f"{place}: {first['msg']}" if place else first["msg"]
    else:
        text = next(iter(str(error).splitlines()), "") or type(error).__name__
    return text[:MOST_LINE_CHARS].rstrip(".")
