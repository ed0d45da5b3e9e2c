"""Demonstrations: what supervised training learns from, how it reads, and where it came from."""

from typing import Literal

from pydantic import Field

from engine.protocol.base import Request, Value
from engine.protocol.problems import Problem

Form = Literal["messages", "prompt and completion", "text prompt and completion", "text"]
"""What a line holds: a conversation; the same with its answer apart; both as plain text; plain
text of which every token is learned."""
Role = Literal["train", "gold", "validation"]


class BadLine(Value):
    """A line that cannot be learned from."""

    file: str
    line: int
    """From 1."""
    reason: str
    """One sentence."""


class Tally(Value):
    """What demonstrations amount to."""

    examples: int = 0
    tokens: int = 0
    """Tokens that the model reads."""
    trained: int = 0
    """Tokens that it learns to say."""
    longest: int = 0
    """Tokens of the longest."""


class DemonstrationFile(Value):
    """One file, read to its end."""

    path: str
    """Relative to the project where it lies inside."""
    role: Role
    lines: int = 0
    """That are not empty."""
    forms: dict[str, int] = Field(default_factory=dict)
    """Good lines by what they hold."""
    tally: Tally = Tally()
    bad: list[BadLine] = Field(default_factory=list)
    """The first of them."""
    bad_count: int = 0
    problem: Problem | None = None
    """Why it cannot be read at all."""


class Demonstrations(Value):
    """What an SFT run of a project would learn from, as its files are now."""

    files: list[DemonstrationFile]
    train: Tally = Tally()
    held_out: Tally = Tally()
    updates: int = 0
    """Optimizer updates of such a run."""
    problem: Problem | None = None
    """Why no such run would start."""


class SupervisedPlan(Value):
    """Settled when an SFT run starts; it stands in its run.json. The run folder keeps the lines."""

    train: Tally
    held_out: Tally
    updates: int
    files: list[str]
    skipped: int = 0
    """Bad lines that were left out because `sft.skip_bad_lines` says so."""


class Selection(Value):
    """Attempts of a run as demonstrations: what was kept, and why the others were not."""

    kept: int
    scenarios: int
    """How many of the scenarios have one that is kept."""
    of: int
    """Scenarios in all."""
    left_out: dict[str, int] = Field(default_factory=dict)
    """Attempts by the reason why they are not kept."""
    mean: float | None = None
    """Mean reward of those that are kept."""
    file: str = ""
    """Where they were written."""


class SelectDemonstrations(Request):
    """Write a run's good attempts as demonstrations."""

    keep: str = "best"
    """`best` of each scenario, `all` that are scored, or `above:0.8`."""
    file: str = "demonstrations.jsonl"
    """Relative to the project; lines of other runs stay as they are. Empty: only count."""
    step: int | None = None
    """Only attempts of this step."""
    split: Literal["train", "validation"] | None = None
    """None: of a run that learns `train`, so that validation stays unseen; of all others both."""
    contestant: str = ""
    """In an evaluation: only attempts of this one."""
