"""Settings of the agent: its program, its limits, and which of its conversations are trained."""

import re
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from engine.protocol.base import Section

NAME = re.compile(r"[A-Za-z][\w-]{0,39}")
ImageName = Annotated[str, Field(max_length=500, pattern=r"^[A-Za-z0-9][A-Za-z0-9._/:@-]*$")]
"""Name, address or id of a container image; never an option of a command line."""
RESERVED = ("main", "other")
"""Names of conversations that no rule names."""


class ConversationRule(Section):
    """Conversations of one kind, recognised by a text or a tool; with both, by both."""

    contains: Annotated[str, Field(max_length=2000)] = ""
    """Text in the system message or the first other message; upper and lower case are equal."""
    tool: Annotated[str, Field(max_length=200)] = ""
    """Name of a tool that the conversation offers."""
    train: bool = True
    """Whether its answers are trained."""

    @model_validator(mode="after")
    def _check_mark(self) -> "ConversationRule":
        if not (self.contains.strip() or self.tool):
            raise ValueError("recognises nothing: set contains, tool, or both")
        return self


class ConversationsConfig(Section):
    """Selection of the trained conversations of a rollout, for agents that hold several: with
    sub-agents, or with side calls that write a title or a summary."""

    others: Literal["train", "ignore"] = "train"
    """Conversations that no rule names, with another system message or other tools than the main
    one, which has most of the answers: train them with the rollout's reward, or ignore them.
    Ignored ones are recorded and shown, but not trained."""
    rules: dict[str, ConversationRule] = Field(default_factory=dict)
    """Conversations by name, as `[agent.conversations.rules.title]`; the first rule that fits
    decides."""

    @field_validator("rules")
    @classmethod
    def _check_names(cls, rules: dict[str, ConversationRule]) -> dict[str, ConversationRule]:
        for name in rules:
            if not NAME.fullmatch(name) or name in RESERVED:
                raise ValueError(
                    f"has a rule named {name!r}: start with a letter, and write up to 40 letters, "
                    f"digits, _ or -, but not {' or '.join(RESERVED)}"
                )
        return rules


class AgentConfig(Section):
    """Your agent's code; it needs only the address and key of an OpenAI-compatible endpoint."""

    source: Literal["project", "outside"] = "project"
    """Source of the rollouts: the project's own agent, or `outside`, a script with its own
    training loop (OpenPipe's ART) that decides when a step begins."""
    file: str = "agent.py"
    """Python file with `rollout(scenario, model)`, relative to the project."""
    command: str | None = None
    """Command to run once per rollout instead of a Python file. OPENAI_BASE_URL, OPENAI_API_KEY,
    ANTHROPIC_BASE_URL, ANTHROPIC_API_KEY and ATELIER_SCENARIO (JSON) are in its environment; its
    last line of output is the result as JSON."""
    python: str | None = None
    """Python interpreter for the file; the engine's own when empty."""
    requirements: str | None = None
    """Packages that the agent imports: a pip requirements file, relative to the project. They are
    installed into a separate environment after you confirm; that environment runs the agent."""
    workers: Annotated[int, Field(ge=1, le=64)] = 1
    """Agent processes; each runs many rollouts concurrently."""
    concurrency: Annotated[int, Field(ge=1, le=1024)] = 64
    """Maximum concurrent rollouts over all workers."""
    timeout_s: Annotated[float, Field(gt=0, le=86_400)] = 120
    """Timeout of one rollout, in seconds of wall-clock time."""
    max_turns: Annotated[int, Field(ge=1, le=1000)] = 32
    """Maximum model calls (turns) per rollout."""
    max_output_bytes: Annotated[int, Field(ge=1024)] = 1_000_000
    """Maximum bytes that one rollout may print or return."""
    sandbox: Literal["none", "process", "container"] = "none"
    """Isolation of a rollout: none, with your rights, or a process in a sandbox of its own
    (Linux), which sees system folders, the project without its scoring, and a scratch folder, and
    reaches the model alone. With `container`, the system is that of agent.image."""
    image: ImageName | None = None
    """Container image with the agent's Python and packages, such as python:3.12-slim; Podman or
    Docker must have it on this machine."""
    rewards_image: ImageName | None = None
    """Container image in which rewards.py runs; agent.image when empty."""
    allowed_hosts: tuple[Annotated[str, Field(min_length=1, max_length=300)], ...] = ()
    """Hosts that a sandboxed agent may reach by HTTPS besides the model, such as pypi.org,
    *.example.com or localhost:8000."""
    memory_mb: Annotated[int, Field(ge=16, le=1_000_000)] = 4096
    """Maximum memory of one sandboxed rollout, in MB over all its processes."""
    disk_mb: Annotated[int, Field(ge=1, le=1_000_000)] = 512
    """Size of the scratch folder of a sandboxed rollout, in MB; it is kept in memory."""
    processes: Annotated[int, Field(ge=1, le=100_000)] = 256
    """Maximum processes and threads of one sandboxed rollout at a time."""
    cpu_s: Annotated[float | None, Field(gt=0, le=1e6)] = None
    """Maximum processor time of one sandboxed rollout, in seconds over all its processes; empty
    for no limit besides the timeout."""
    conversations: ConversationsConfig = ConversationsConfig()
    """Rules for the agent's conversations besides the main one."""

    @model_validator(mode="after")
    def _check_image(self) -> "AgentConfig":
        if self.sandbox == "container" and not self.image:
            raise ValueError(
                "has sandbox = container, but no image: set agent.image to one with the agent's "
                "packages, such as python:3.12-slim"
            )
        if self.sandbox == "container" and self.requirements:
            raise ValueError(
                "has both an image and requirements: install the packages in the image, and leave "
                "agent.requirements empty"
            )
        return self

    @model_validator(mode="after")
    def _check_interpreter(self) -> "AgentConfig":
        if self.python and self.requirements:
            raise ValueError(
                "has both python and requirements: the required packages get an interpreter of "
                "their own, so leave one of the two settings empty"
            )
        return self
