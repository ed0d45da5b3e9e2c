"""Requests of external scripts with their own training loop, and the engine's responses.

The engine samples, trains and stores; the script makes the rollouts and decides when a step begins.
"""

import math
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from engine.protocol.base import Request, Value
from engine.protocol.config.algorithm import Algorithm
from engine.protocol.records.runs import RunSummary, Split

MOST_REWARD = 1e6
CHOICE_ID = "atelier_completion"
"""Key of a chat completion choice that carries the id of its record."""


def _in_range(reward: float) -> float:
    """Check the range of a finite reward, so that sums stay finite; a NaN or infinite reward makes
    its trajectory unscored."""
    if math.isfinite(reward) and abs(reward) > MOST_REWARD:
        raise ValueError(f"a reward must be between -{MOST_REWARD:g} and {MOST_REWARD:g}")
    return reward


class OpenOutside(Request):
    """Create a run with this name, or continue it."""

    project: str = Field(min_length=1)
    """Project folder in the workspace; created if it does not exist."""
    model: str = Field(min_length=1)
    """Name of the run; a second start with the same name continues it."""
    base_model: str
    """Starter model, Hugging Face id, or folder on the engine's machine."""
    source: str = ""
    """Name and version of the script's library."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Values by dotted key of project.toml, for a new run."""
    pid: int
    """Process id of the script on the engine's machine; the run stops when the process ends."""
    key: str = Field(min_length=32, repr=False)
    """API key of the script at the gateway; a second request with the same key changes nothing."""
    again: bool = False
    """True after the connection to the engine was lost; a run that a person has stopped then stays
    stopped."""


class OutsideRun(Value):
    """Address and model name for the script."""

    run: RunSummary
    step: int
    """Number of finished updates."""
    base_url: str
    notes: list[str] = Field(default_factory=list)
    """Differences from the script's request, one sentence each."""


class SentHistory(Request):
    """Conversation: messages in the OpenAI format, and choices as the gateway returned them."""

    messages_and_choices: list[dict[str, Any]]
    tools: list[dict[str, Any]] = Field(default_factory=list)


class SentAttempt(SentHistory):
    """Trajectory in ART's form."""

    additional_histories: list[SentHistory] = Field(default_factory=list)
    reward: Annotated[float, AfterValidator(_in_range)] | None
    initial_policy_version: int | None = None
    metrics: dict[str, float] = Field(default_factory=dict)
    metadata: dict[str, Any] = Field(default_factory=dict)
    logs: list[str] = Field(default_factory=list)


class SentError(Request):
    """Rollout that raised an exception."""

    type: str
    message: str
    traceback: str = ""


class SentGroup(Request):
    """Group of trajectories that are compared with each other."""

    trajectories: list[SentAttempt] = Field(default_factory=list)
    exceptions: list[SentError] = Field(default_factory=list)
    metadata: dict[str, Any] = Field(default_factory=dict)
    metrics: dict[str, float] = Field(default_factory=dict)
    logs: list[str] = Field(default_factory=list)


class TrainGroups(Request):
    """Train one step on these groups."""

    groups: list[SentGroup] = Field(min_length=1)
    lr: Annotated[float, Field(gt=0, le=1)]
    algorithm: Algorithm
    save: bool = True
    """Whether to save a checkpoint of the step."""
    key: str = Field(min_length=8)
    """Idempotency key: the same key trains one step, however often it is sent."""


class Trained(Value):
    """Result of a finished step."""

    step: int
    metrics: dict[str, float]
    """Metrics by the names in engine/protocol/records/metrics.py."""
    skipped: bool
    """Whether no group had a signal, so that nothing was trained."""
    checkpoint: str = ""
    """Folder of the checkpoint, if one was saved."""


class LogOutside(Request):
    """Log data of a script besides training: trajectories of another split, and metrics."""

    split: Split
    name: str
    """Name of the split in the script."""
    step: int = Field(ge=0)
    groups: list[SentGroup] = Field(default_factory=list)
    values: dict[str, float] = Field(default_factory=dict)
    key: str = Field(min_length=8)
    """Idempotency key: the same key stores the data once, however often it is sent."""


class CloseOutside(Request):
    """Close the run of a script."""

    key: str = Field(repr=False)
    finished: bool = True
    """False if the script ended early."""
