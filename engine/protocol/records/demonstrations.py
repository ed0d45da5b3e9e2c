"""Demonstrations for supervised training: files, formats, token counts and origin."""

from typing import Literal

from pydantic import Field

from engine.protocol.base import Request, Value
from engine.protocol.problems import Problem

Form = Literal["messages", "prompt and completion", "text prompt and completion", "text"]
"""Format of a line: a conversation; prompt and completion as messages; both as plain text; or plain
text with all tokens trained."""
Role = Literal["train", "gold", "validation"]


class BadLine(Value):
    """Line that cannot be used for training."""

    file: str
    line: int
    """Line number, from 1."""
    reason: str
    """Why the line is rejected, in one sentence."""


class Tally(Value):
    """Counts of demonstrations and tokens."""

    examples: int = 0
    tokens: int = 0
    """Number of tokens, prompts included."""
    trained: int = 0
    """Number of trained tokens."""
    longest: int = 0
    """Number of tokens of the longest demonstration."""


class DemonstrationFile(Value):
    """Contents of one demonstration file."""

    path: str
    """Path relative to the project if it is inside."""
    role: Role
    lines: int = 0
    """Number of non-empty lines."""
    forms: dict[str, int] = Field(default_factory=dict)
    """Format → number of valid lines."""
    tally: Tally = Tally()
    bad: list[BadLine] = Field(default_factory=list)
    """First invalid lines."""
    bad_count: int = 0
    problem: Problem | None = None
    """Why the file cannot be read at all."""


class Demonstrations(Value):
    """Data that an SFT run of a project would train on, from the current files."""

    files: list[DemonstrationFile]
    train: Tally = Tally()
    held_out: Tally = Tally()
    updates: int = 0
    """Number of optimizer steps of such a run."""
    problem: Problem | None = None
    """Why such a run would not start."""


class SupervisedPlan(Value):
    """Data of an SFT run, fixed at its start and stored in run.json. The run folder keeps the
    lines."""

    train: Tally
    held_out: Tally
    updates: int
    files: list[str]
    skipped: int = 0
    """Number of invalid lines skipped because `sft.skip_bad_lines` is set."""


class Selection(Value):
    """Trajectories of a run selected as demonstrations, and why the others were rejected."""

    kept: int
    scenarios: int
    """Number of scenarios with a selected trajectory."""
    of: int
    """Number of all scenarios."""
    left_out: dict[str, int] = Field(default_factory=dict)
    """Reason → number of rejected trajectories."""
    mean: float | None = None
    """Mean reward of the selected trajectories."""
    file: str = ""
    """Path of the written file."""


class SelectDemonstrations(Request):
    """Write a run's good trajectories as demonstrations."""

    keep: str = "best"
    """`best` of each scenario, `all` scored ones, or `above:0.8`."""
    file: str = "demonstrations.jsonl"
    """Path relative to the project; lines of other runs are preserved. Empty only counts."""
    step: int | None = None
    """Restrict to trajectories of this step."""
    split: Literal["train", "validation"] | None = None
    """None: only `train` for a run that trains on it, so that validation stays unseen; both for
    other runs."""
    contestant: str = ""
    """Restrict to trajectories of this contestant of an evaluation."""
