"""LLM judge: rubrics, calls and verdicts."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field

from engine.protocol.base import Value
from engine.protocol.problems import Problem
from engine.protocol.records.runs import Split, TrajectorySummary

PART = "ruler"
"""Name of the judge's reward part."""


class Criterion(Value):
    """Weighted criterion of a rubric."""

    name: str
    weight: Annotated[float, Field(gt=0)] = 1.0
    words: str = ""
    """Description of the criterion for the judge, in addition to the rubric."""


class Rubric(Value):
    """Rubric in plain English, with optional weighted criteria in its front matter."""

    source: str
    """Text of the file, front matter included."""
    text: str
    criteria: tuple[Criterion, ...] = ()
    lessons: tuple[str, ...] = ()
    """Ids of labels used as examples in the prompt."""

    @property
    def version(self) -> str:
        """Hash of text and examples; any change makes another version."""
        return version_of(self.source, *self.lessons)


class Usage(Value):
    """Tokens and cost of one call."""

    prompt_tokens: Annotated[int, Field(ge=0)] = 0
    completion_tokens: Annotated[int, Field(ge=0)] = 0
    cost_usd: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    known: bool = True
    """False if the response was lost: the cost is then an upper bound."""


class Call(Value):
    """Call to a judge, or of a rollout to a provider's model, with request and response exactly as
    sent."""

    key: str
    """SHA-256 of model, settings and messages: equal calls are made once."""
    judge: str
    rubric: str
    """Version of the rubric."""
    messages: list[dict[str, Any]]
    reply: str = ""
    finish: str = ""
    """The provider's finish_reason; "length" means the response was truncated."""
    usage: Usage = Usage()
    seconds: float = 0.0
    at: float = 0.0
    problem: Problem | None = None
    """Why there is no usable response."""


class Quote(Value):
    """Text that a judge quotes from the transcript."""

    text: str
    found: bool
    """Whether the transcript contains it."""


class Verdict(Value):
    """Verdict of one judge on one trajectory, relative to its group."""

    trajectory_id: str
    judge: str
    rubric: str
    """Version of the rubric."""
    score: float | None
    """Score in [0, 1]; None is unscored, and `problem` says why."""
    reason: str = ""
    criteria: dict[str, float] = Field(default_factory=dict)
    quotes: list[Quote] = Field(default_factory=list)
    passes: list[float] = Field(default_factory=list)
    """Score of each judge pass over the group, in order."""
    calls: list[str] = Field(default_factory=list)
    """Keys of the underlying calls."""
    stability: float | None = None
    """Mean Kendall's τ between the rankings of the passes; None after one pass."""
    problem: Problem | None = None


def chief_verdict(trajectory: TrajectorySummary, verdicts: Sequence[Verdict]) -> Verdict | None:
    """Return the most important verdict on a trajectory: the one used in its reward, else the
    newest with a score, else the newest; None without any. `verdicts` are oldest first and may
    include those of other trajectories."""
    own = [one for one in verdicts if one.trajectory_id == trajectory.id]
    parts = trajectory.unlabelled.parts if trajectory.unlabelled else trajectory.parts
    scored = [one for one in own if one.score is not None]
    meant = [one for one in scored if abs((one.score or 0) - parts.get(PART, -1)) < 1e-9]
    found = meant or scored or own
    return found[-1] if found else None


class RubricVersion(Value):
    """Stored version of a rubric."""

    number: int
    """Version number within the project, from 1."""
    version: str
    source: str
    at: float
    who: str
    """Author of the version; "outside" if another program changed the file."""


class RubricView(Value):
    """Rubric of the project with its version history."""

    source: str
    """Current text of the file; empty if there is none."""
    version: str
    problem: Problem | None = None
    """Why the rubric cannot be used."""
    criteria: tuple[Criterion, ...] = ()
    versions: list[RubricVersion] = Field(default_factory=list)
    """Versions, oldest first; the last equals the file."""
    fingerprint: str = ""
    """SHA-256 of the file that was read."""


class TrialPrice(Value):
    """Estimated calls and cost of a trial of a rubric."""

    groups: int
    calls: int
    """Number of first passes without a stored response."""
    most_calls: int
    """Maximum number of calls, with all further passes and retries that the settings allow."""
    cached: int
    """Number of first passes with a stored response, which cost nothing."""
    tokens: int
    """Tokens of the calls by the judge's tokenizer; response lengths as observed so far."""
    usd: float
    most_usd: float
    left_usd: float | None
    """Remaining budget in US dollars; None without a budget."""
    seconds: float
    """Estimated duration in seconds, from previous calls."""
    question: list[dict[str, str]] = Field(default_factory=list)
    """Messages of the first call, exactly as they will be sent."""


class Tried(Value):
    """Stored group scored again with another rubric or judge."""

    split: Split
    step: int
    group: int
    title: str
    before: dict[str, float]
    """Trajectory id → score before, from the run or the previous rubric; `after` likewise."""
    after: dict[str, float]
    indexes: dict[str, int]
    """Trajectory id → index within the group, from 0."""
    advantages: dict[str, tuple[float | None, float | None]]
    """Trajectory id → advantages before and after; None if unscored."""
    pairs: int
    """Number of pairs for which the person has a preference."""
    obeyed_before: int
    obeyed: int
    problem: Problem | None = None
    """Why some trajectories stayed unscored."""


class Disagreement(Value):
    """Pair of trajectories that a judge orders differently from the person."""

    split: Split
    step: int
    group: int
    title: str
    judge: str
    rubric: str
    better: int
    """Index within the group of the trajectory that the person prefers."""
    worse: int
    better_score: float
    worse_score: float
    reason: str = ""
    """Reason of the judge for the one it preferred."""
    why: str = ""
    """Reason of the person."""
    task: str = ""
    better_text: str = ""
    worse_text: str = ""


class Suggestion(Value):
    """Rubric proposed by the judge."""

    source: str
    """Text of the rubric; empty if none was proposed."""
    cases: int
    """Number of disagreements shown to the judge."""
    usd: float
    problem: Problem | None = None


class CheckedAttempt(Value):
    """Trajectory that a judge scored in a test of the judge."""

    id: str
    made_up: bool
    """True for a made-up trajectory, False for one of the project's agent."""
    text: str
    """End of its last message."""


class JudgeAnswer(Value):
    """Response of one judge in the test."""

    judge: str
    verdicts: list[Verdict]
    """One verdict per trajectory, in their order."""
    seconds: float
    usage: Usage
    """Usage of all calls to this judge: one, or two after a malformed response."""
    problem: Problem | None = None
    """Why a trajectory has no score."""


class JudgeCheck(Value):
    """Test of the project's judges with one real call each."""

    run_id: str
    """Id of the arena's run, which stores the calls."""
    title: str
    """Title of the scenario."""
    attempts: list[CheckedAttempt]
    answers: list[JudgeAnswer]
    """Response of each judge, in the order of the project's settings."""


class JudgeOption(Value):
    """Judge model available for selection."""

    model: str
    """Model name for LiteLLM."""
    title: str
    base_url: str | None = None
    where: str = ""
    """`Ollama on this machine`; empty for a provider on the network."""


def version_of(*texts: str) -> str:
    """Return a version for these texts in this order: 12 hex digits of their SHA-256."""
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:12]


def provider_of(model: str) -> str:
    """Return the provider of a LiteLLM model name: `openai/gpt-5` → `openai`, also for a name
    without a slash."""
    provider, slash, _ = model.partition("/")
    return provider if slash else "openai"


def keys_in(environment: Mapping[str, str], models: Sequence[str]) -> dict[str, str]:
    """Return provider → API key of the judge models, from environment variables (name → value)
    such as `OPENAI_API_KEY` for `openai/…`; providers without a key are absent."""
    providers = {provider_of(model) for model in models}
    keys = {name: environment.get(f"{name.upper()}_API_KEY", "") for name in providers}
    return {name: key for name, key in keys.items() if key}
