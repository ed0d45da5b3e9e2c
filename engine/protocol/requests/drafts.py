"""Project generation: a task description, and the draft that an LLM writes for it; a project made
of an environment of verifiers, or of a task of Inspect."""

from typing import Annotated, Literal

from pydantic import Field

from engine.protocol.base import Request, Value
from engine.protocol.problems import Problem

DRAFT_MARK = '# Being written: see "New project from a description".\n'
"""First line of the project.toml of an unfinished project."""
LEAST = 8
"""Minimum number of scenarios, for training and validation together."""
Difficulty = Annotated[int, Field(ge=1, le=5)]


class Writer(Value):
    """LLM that writes the draft, and its budget."""

    model: str
    """Model name for LiteLLM: `openai/gpt-5.4`."""
    base_url: str | None = None
    """Base URL of an OpenAI-compatible server, for models named `openai/…`."""
    budget_usd: Annotated[float, Field(ge=0)] | None = 1.0
    """Budget in US dollars; everything written within the budget is kept."""
    price_prompt: Annotated[float, Field(ge=0)] | None = None
    """Price in US dollars per million prompt tokens, if the price list lacks the model."""
    price_completion: Annotated[float, Field(ge=0)] | None = None
    """Price in US dollars per million completion tokens, if the price list lacks the model."""


class ToolView(Value):
    """Tool available to the agent."""

    server: str
    name: str
    description: str = ""
    parameters: dict[str, object] = Field(default_factory=dict)
    """JSON Schema of its arguments."""


class DescribeTask(Request):
    """Generate a project from a task description."""

    folder: str
    """Project folder: new, empty, or with an unfinished project."""
    description: str = Field(min_length=20, max_length=20_000)
    """Task in one paragraph: inputs, expected outputs, criteria."""
    writer: Writer
    count: int = Field(default=60, ge=LEAST, le=2000)
    """Number of scenarios to write, validation included."""
    tools: list[ToolView] = Field(default_factory=list)
    """Tools of the agent; the scenarios are tasks for these."""


class BeginWithTools(Request):
    """Prepare a project whose agent uses MCP servers; nothing is generated yet."""

    folder: str
    """Project folder: new, empty, or with an unfinished project."""
    servers: str = ""
    """Path of an mcp.json to copy; empty keeps the project's."""


class DraftScenario(Value):
    """Generated scenario."""

    input: str
    difficulty: Difficulty | None = None
    """1 easy to 5 hard, as rated by the LLM; None if not rated."""
    split: Literal["train", "validation"] = "train"


class Draft(Value):
    """Everything that was generated; editable before the project is written."""

    title: str = ""
    system: str = ""
    """System prompt of the agent."""
    rubric: str = ""
    scenarios: list[DraftScenario] = Field(default_factory=list)


class FinishProject(Request):
    """Write a draft into the project's files."""

    folder: str
    description: str = ""
    draft: Draft
    learner: str = ""
    """Model to train; the starter model when empty."""
    judge: Writer
    """Judge model."""
    tools: bool = False
    """Whether the agent has the tools of its mcp.json."""


class DraftTicked(Value):
    """Progress of the generation, with the draft so far."""

    words: str
    """Current activity."""
    spent_usd: float
    """Cost of all calls so far in US dollars, with the running one at its maximum."""
    next_usd: float = 0.0
    """Maximum cost of the next call in US dollars."""
    draft: Draft
    left_out: dict[str, int] = Field(default_factory=dict)
    """Reason → number of rejected items."""
    problem: Problem | None = None
    """Why the generation ended early."""
    ended: bool = False


BridgedLibrary = Literal["verifiers", "inspect"]


class BeginEnvironment(Request):
    """Create the project of an environment of verifiers, or of a task of Inspect; its packages are
    not installed yet."""

    library: BridgedLibrary = "verifiers"
    folder: str
    """Project folder: new, empty, or with a project of the environment that has no scenarios."""
    name: Annotated[str, Field(min_length=1, max_length=1000)]
    """NAME, NAME==VERSION or NAME:MODULE of a package on PyPI, or a folder; of a task:
    FILE.py@TASK, or PACKAGE/TASK."""
    arguments: dict[str, object] = Field(default_factory=dict)
    """Arguments of the environment or task."""


class ReadEnvironment(Request):
    """Read the data set of an environment into the scenarios of its project."""

    folder: str
    scenarios: Annotated[int, Field(ge=1, le=100_000)] = 500
    """Maximum number of scenarios for training."""


class EnvironmentData(Value):
    """Scenarios that were read from the data set of an environment."""

    train: int
    validation: int
    sandboxed: bool
    """Whether the environment's code runs in a sandbox."""
    notes: list[str] = Field(default_factory=list)
    """Sentences about rows that were not taken, and about the sandbox."""


class EnvironmentNames(Value):
    """Names of environments of verifiers that need no search."""

    names: list[str] = Field(default_factory=list)
