"""The judge on the wire: rubrics, calls, verdicts."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field

from engine.protocol.base import Value
from engine.protocol.problems import Problem
from engine.protocol.records.runs import Split

PART = "ruler"
"""Name of the judge's reward part."""


class Criterion(Value):
    """One weighted demand of a rubric."""

    name: str
    weight: Annotated[float, Field(gt=0)] = 1.0
    words: str = ""
    """What the judge is told about it, beside the rubric."""


class Rubric(Value):
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


class Usage(Value):
    """What one call took."""

    prompt_tokens: Annotated[int, Field(ge=0)] = 0
    completion_tokens: Annotated[int, Field(ge=0)] = 0
    cost_usd: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    known: bool = True
    """False where the answer was lost on the way: the cost is then the most it can have been."""


class Call(Value):
    """One question to a judge, or of an attempt to a provider's model, exactly as sent, and its
    answer, exactly as received."""

    key: str
    """SHA-256 of model, settings and messages: equal questions are asked once."""
    judge: str
    rubric: str
    """Version of the rubric."""
    messages: list[dict[str, Any]]
    reply: str = ""
    finish: str = ""
    """The provider's finish_reason: "length" where the reply was cut."""
    usage: Usage = Usage()
    seconds: float = 0.0
    at: float = 0.0
    problem: Problem | None = None
    """Why there is no usable reply."""


class Quote(Value):
    """Words that a judge says are in the transcript."""

    text: str
    found: bool
    """Whether they are."""


class Verdict(Value):
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


class RubricVersion(Value):
    """A rubric as it once was."""

    number: int
    """1, 2, 3 … of this project."""
    version: str
    source: str
    at: float
    who: str
    """Who saved it; "outside" where the file was changed by another program."""


class RubricView(Value):
    """The project's rubric and how it came to be."""

    source: str
    """The file as it is; empty where there is none yet."""
    version: str
    problem: Problem | None = None
    """Why it cannot be used."""
    criteria: tuple[Criterion, ...] = ()
    versions: list[RubricVersion] = Field(default_factory=list)
    """Oldest first; the last is what the file holds."""
    fingerprint: str = ""
    """SHA-256 of the file that was read."""


class TrialPrice(Value):
    """What a trial would ask and cost."""

    groups: int
    calls: int
    """First looks that have no stored answer."""
    most_calls: int
    """With every further look and retry for form that the settings allow."""
    cached: int
    """First looks that are answered already, and free."""
    tokens: int
    """Of the calls, as the judge's tokenizer counts them, with the answers as they were so far."""
    usd: float
    most_usd: float
    left_usd: float | None
    """Of the budget; None without one."""
    seconds: float
    """About, by the calls so far."""
    question: list[dict[str, str]] = Field(default_factory=list)
    """The first of them, exactly as it is sent."""


class Tried(Value):
    """One stored group under another rubric or judge."""

    split: Split
    step: int
    group: int
    title: str
    before: dict[str, float]
    """Scores by trajectory, as the run has them (or the verdicts of the rubric before)."""
    after: dict[str, float]
    indexes: dict[str, int]
    """Place among the siblings, by trajectory."""
    advantages: dict[str, tuple[float | None, float | None]]
    """Before and after."""
    pairs: int
    """Of which the person prefers one."""
    obeyed_before: int
    obeyed: int
    problem: Problem | None = None
    """Why some stayed unscored."""


class Disagreement(Value):
    """A pair of attempts that a judge does not put in the person's order."""

    split: Split
    step: int
    group: int
    title: str
    judge: str
    rubric: str
    better: int
    """Place among the siblings of the one that the person prefers."""
    worse: int
    better_score: float
    worse_score: float
    reason: str = ""
    """The judge's, for the one that it preferred."""
    why: str = ""
    """The person's."""
    task: str = ""
    better_text: str = ""
    worse_text: str = ""


class Suggestion(Value):
    """A rubric that the judge proposes."""

    source: str
    """Empty where it proposed none."""
    cases: int
    """Disagreements that it was shown."""
    usd: float
    problem: Problem | None = None


class CheckedAttempt(Value):
    """An attempt that a judge compared in a test of the judge."""

    id: str
    made_up: bool
    """False for an attempt of the project's agent."""
    text: str
    """The end of its last answer."""


class JudgeAnswer(Value):
    """Answer of one judge to the test."""

    judge: str
    verdicts: list[Verdict]
    """Verdict on each attempt, in the order of the attempts."""
    seconds: float
    usage: Usage
    """Usage of all questions to this judge: one, or two after a reply of the wrong form."""
    problem: Problem | None = None
    """Why an attempt has no score."""


class JudgeCheck(Value):
    """A test of the project's judges: one real question to each."""

    run_id: str
    """The arena's run, which has the questions and answers word for word."""
    title: str
    """Title of the scenario."""
    attempts: list[CheckedAttempt]
    answers: list[JudgeAnswer]
    """Answer of each judge, in the order of the project's settings."""


class JudgeOption(Value):
    """A judge that could be chosen."""

    model: str
    """As litellm names it."""
    title: str
    base_url: str | None = None
    where: str = ""
    """`Ollama on this machine`; empty for a provider on the network."""


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
