"""Training by a script that has its own loop: what it sends, and what it is told.

The engine samples, trains and stores; the script makes the attempts and says when a step begins.
"""

import math
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from engine.protocol.algorithm import Algorithm
from engine.protocol.records import RunSummary, Split
from engine.protocol.requests import Answer, Request

MOST_REWARD = 1e6
CHOICE_ID = "atelier_completion"
"""The key under which a choice of a chat completion carries the name of its record."""


def _in_range(reward: float) -> float:
    """What is no number makes its attempt unscored; sums of numbers in range stay finite."""
    if math.isfinite(reward) and abs(reward) > MOST_REWARD:
        raise ValueError(f"a reward lies between -{MOST_REWARD:g} and {MOST_REWARD:g}")
    return reward


class OpenOutside(Request):
    """Begin a run of this name, or go on with it."""

    project: str = Field(min_length=1)
    """Its folder in the workspace; made where there is none."""
    model: str = Field(min_length=1)
    """The run's name: a second start with the same one goes on."""
    base_model: str
    """A starter, a Hugging Face id on the engine's machine, or a folder there."""
    source: str = ""
    """What the script is written with, and its version."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Dotted keys of project.toml, for a run that begins."""
    pid: int
    """The script's process, on the engine's machine; the run stops when it is gone."""
    key: str = Field(min_length=32, repr=False)
    """With which the script asks the gateway; the same one again changes nothing."""
    again: bool = False
    """The engine was gone for a while. A run that a person has stopped then stays stopped."""


class OutsideRun(Answer):
    """Where the script finds its model."""

    run: RunSummary
    step: int
    """Updates done."""
    base_url: str
    notes: list[str] = Field(default_factory=list)
    """What is not as the script asked for, a sentence each."""


class SentHistory(Request):
    """One conversation: messages in the OpenAI form, and choices as the gateway gave them."""

    messages_and_choices: list[dict[str, Any]]
    tools: list[dict[str, Any]] = Field(default_factory=list)


class SentAttempt(SentHistory):
    """One trajectory as ART has it."""

    additional_histories: list[SentHistory] = Field(default_factory=list)
    reward: Annotated[float, AfterValidator(_in_range)] | None
    initial_policy_version: int | None = None
    metrics: dict[str, float] = Field(default_factory=dict)
    metadata: dict[str, Any] = Field(default_factory=dict)
    logs: list[str] = Field(default_factory=list)


class SentError(Request):
    """An attempt that raised."""

    type: str
    message: str
    traceback: str = ""


class SentGroup(Request):
    """Attempts that are compared with each other."""

    trajectories: list[SentAttempt] = Field(default_factory=list)
    exceptions: list[SentError] = Field(default_factory=list)
    metadata: dict[str, Any] = Field(default_factory=dict)
    metrics: dict[str, float] = Field(default_factory=dict)
    logs: list[str] = Field(default_factory=list)


class TrainGroups(Request):
    """One step from these groups."""

    groups: list[SentGroup] = Field(min_length=1)
    lr: Annotated[float, Field(gt=0, le=1)]
    algorithm: Algorithm
    save: bool = True
    """Keep a checkpoint of the step."""
    key: str = Field(min_length=8)
    """Idempotency key: the same one trains one step however often it is sent."""


class Trained(Answer):
    """A step that is done and stored."""

    step: int
    metrics: dict[str, float]
    """By the names of protocol/metrics.py."""
    skipped: bool
    """No attempt differed from its siblings: nothing was learned."""
    checkpoint: str = ""
    """Its folder, where one was kept."""


class LogOutside(Request):
    """What the script logs beside training: attempts of another split, and figures."""

    split: Split
    name: str
    """What the script calls the split."""
    step: int = Field(ge=0)
    groups: list[SentGroup] = Field(default_factory=list)
    values: dict[str, float] = Field(default_factory=dict)
    key: str = Field(min_length=8)
    """Idempotency key: the same one is stored once however often it is sent."""


class CloseOutside(Request):
    """The script is done with its run."""

    key: str = Field(repr=False)
    finished: bool = True
    """False where it ended on the way."""
