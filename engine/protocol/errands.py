"""What an engine asks of its home machine: questions to judges, where keys stay at home."""

from typing import Any

from pydantic import Field

from engine.protocol.problems import Problem
from engine.protocol.requests import Answer, Request


class Errand(Answer):
    """One call of a judge's process (engine/judge/worker.py), to be made at home."""

    id: str
    run_id: str
    op: str
    """`price`, `count`, `ask` or `chat`."""
    fields: dict[str, Any]


class ErrandList(Answer):
    errands: list[Errand]


class ErrandDone(Request):
    """Its answer, as the process gave it."""

    answer: Any = None
    problem: Problem | None = None
    """Why there is none."""


class Lease(Request):
    """Who this engine works for: one home at a time."""

    home: str = Field(pattern=r"^[A-Za-z0-9-]{8,64}$")
    """A number that a workspace made for itself once."""
    name: str = ""
    """What the person calls that machine."""
    take_over: bool = False
    fresh: bool = False
    """It has just come: whatever it was given before is given to it again."""


class Leased(Answer):
    seconds: float
    """How long it lasts without a word."""
