"""A task in words → a project: what is asked for, and what an LLM wrote for it."""

from typing import Annotated, Literal

from pydantic import Field

from engine.protocol.base import Request, Value
from engine.protocol.problems import Problem

BEGUN = '# Being written: see "New project from a description".\n'
"""How the project.toml begins of a project that is not finished."""
LEAST = 8
"""Scenarios without which there is nothing to train on and to test with."""
Difficulty = Annotated[int, Field(ge=1, le=5)]


class Writer(Value):
    """Who writes, and what that may cost."""

    model: str
    """As litellm names it: `openai/gpt-5.4`."""
    base_url: str | None = None
    """Address of an OpenAI-compatible server, for models named `openai/…`."""
    budget_usd: Annotated[float, Field(ge=0)] | None = 1.0
    """Dollars that all of it may cost; what is written by then is kept."""
    price_prompt: Annotated[float, Field(ge=0)] | None = None
    """Dollars for a million tokens asked, where the price list lacks the model."""
    price_completion: Annotated[float, Field(ge=0)] | None = None
    """Dollars for a million tokens answered, where the price list lacks the model."""


class ToolView(Value):
    """A tool that the agent may call."""

    server: str
    name: str
    description: str = ""
    parameters: dict[str, object] = Field(default_factory=dict)
    """JSON Schema of its arguments."""


class DescribeTask(Request):
    """Write what a project needs for a task that is described in words."""

    folder: str
    """Of the project: new, empty, or one that was begun so."""
    description: str = Field(min_length=20, max_length=20_000)
    """A paragraph: what comes in, what should come out, what is good."""
    writer: Writer
    count: int = Field(default=60, ge=LEAST, le=2000)
    """Scenarios wanted, those for validation included."""
    tools: list[ToolView] = Field(default_factory=list)
    """What the agent can call; the scenarios are tasks for these."""


class BeginWithTools(Request):
    """Make of a project what its agent needs to reach MCP servers: nothing is written yet."""

    folder: str
    """Of the project: new, empty, or one that was begun so."""
    servers: str = ""
    """An mcp.json; empty where they are added one by one."""


class DraftScenario(Value):
    """One task instance, as it was written."""

    input: str
    difficulty: Difficulty | None = None
    """1 easy to 5 hard, as the writer thinks; None where it did not say."""
    split: Literal["train", "validation"] = "train"


class Draft(Value):
    """Everything that was written; a person may change all of it."""

    title: str = ""
    system: str = ""
    """The agent's system prompt."""
    rubric: str = ""
    scenarios: list[DraftScenario] = Field(default_factory=list)


class FinishProject(Request):
    """Write a draft into the project's files."""

    folder: str
    description: str = ""
    draft: Draft
    learner: str = ""
    """The model that learns; the starter when empty."""
    judge: Writer
    """Who judges by the rubric."""
    tools: bool = False
    """The agent has tools: those of its mcp.json."""


class DraftTold(Value):
    """How far the writing is, and what there is by now."""

    words: str
    """What is being done."""
    spent_usd: float
    """By all questions so far, with the next one at its highest."""
    next_usd: float = 0.0
    """What the next question can cost at most."""
    draft: Draft
    left_out: dict[str, int] = Field(default_factory=dict)
    """What was written and not taken, by reason."""
    problem: Problem | None = None
    """Why it ended before all was written."""
    ended: bool = False
