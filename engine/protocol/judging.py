"""The judge on the wire: rubrics, calls, verdicts."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import Field

from engine.protocol.problems import Problem
from engine.protocol.records import Record

PART = "ruler"
"""Name of the judge's reward part."""


class Criterion(Record):
    """One weighted demand of a rubric."""

    name: str
    weight: Annotated[float, Field(gt=0)] = 1.0
    words: str = ""
    """What the judge is told about it, beside the rubric."""


class Rubric(Record):
    """Plain English, with optional weighted criteria in front of it."""

    source: str
    """The file as it was written: front matter and text."""
    text: str
    criteria: tuple[Criterion, ...] = ()
    lessons: tuple[str, ...] = ()
    """Ids of the labels that teach by example."""

    @property
    def version(self) -> str:
        """Changed words, or other examples, are another rubric."""
        return version_of(self.source, *self.lessons)


class Usage(Record):
    """What one call took."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost_usd: float = 0.0
    known: bool = True
    """False where the answer was lost on the way: the cost is then the most it can have been."""


class Call(Record):
    """One question to a judge, exactly as sent, and its answer, exactly as received."""

    key: str
    """SHA-256 of model, settings and messages: equal questions are asked once."""
    judge: str
    rubric: str
    """Version of the rubric."""
    messages: list[dict[str, str]]
    reply: str = ""
    usage: Usage = Usage()
    seconds: float = 0.0
    at: float = 0.0
    problem: Problem | None = None
    """Why there is no usable reply."""


class Quote(Record):
    """Words that a judge says are in the transcript."""

    text: str
    found: bool
    """Whether they are."""


class Verdict(Record):
    """What one judge thinks of one trajectory, beside its siblings."""

    trajectory_id: str
    judge: str
    rubric: str
    """Version of the rubric."""
    score: float | None
    """In [0, 1]; None is unscored, and `problem` says why."""
    reason: str = ""
    criteria: dict[str, float] = Field(default_factory=dict)
    quotes: list[Quote] = Field(default_factory=list)
    passes: list[float] = Field(default_factory=list)
    """The score of each pass over the group, in order."""
    calls: list[str] = Field(default_factory=list)
    """Keys of the calls behind it."""
    stability: float | None = None
    """Mean Kendall τ between the passes' rankings of the group; None after one pass."""
    problem: Problem | None = None


def version_of(*texts: str) -> str:
    """Twelve digits of their SHA-256."""
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:12]


def provider_of(model: str) -> str:
    """Whose key a judge needs: `openai/gpt-5` → `openai`."""
    provider, slash, _ = model.partition("/")
    return provider if slash else "openai"


def keys_in(environment: Mapping[str, str], models: Sequence[str]) -> dict[str, str]:
    """The judges' API keys among environment variables: `OPENAI_API_KEY` for `openai/…`."""
    providers = {provider_of(model) for model in models}
    found = {name: environment.get(f"{name.upper()}_API_KEY", "") for name in providers}
    return {name: key for name, key in found.items() if key}
