"""Environments beside the engine's own, and engines that live in one."""

from typing import Literal

from pydantic import Field

from engine.protocol.base import Request, Value
from engine.protocol.problems import Problem

BUILT_IN = "built-in"
"""The engine of the interpreter that studio and command line run in."""

EnvironmentState = Literal["absent", "partial", "ready", "broken"]
"""`partial`: an installation was cut off, and goes on from what has arrived."""
EnvironmentStage = Literal[
    "waiting",
    "resolving",
    "checking",
    "downloading",
    "installing",
    "trying",
    "verifying",
    "removing",
]
EnvironmentAction = Literal["install", "verify", "repair", "remove", "cancel"]


class EnvironmentTicked(Value):
    """How far a job is; never stored."""

    kind: Literal["tick"] = "tick"
    stage: EnvironmentStage
    words: str
    done: int
    """Packages."""
    total: int
    share: float
    """Of the whole job, from 0 to 1."""


class EnvironmentView(Value):
    """One environment, as it is now."""

    name: str
    title: str
    purpose: str
    """What it brings, in a sentence."""
    needs: str
    """What kind of machine it is made for."""
    unfit: str = ""
    """Why it cannot be installed here."""
    lacks: str = ""
    """What this machine lacks to make use of it; it can be installed all the same."""
    engine: bool = False
    """It holds a whole engine, which can take the place of ours."""
    state: EnvironmentState
    home: str = ""
    python: str = ""
    wrong: list[str] = Field(default_factory=list)
    """What was found damaged, a sentence each."""
    bytes: int
    """On disk; about that much while it is not installed."""
    download_bytes: int
    arrived: int = 0
    """Packages of an installation that was cut off."""
    packages: int = 0
    elsewhere: bool = False
    """Another program of yours is at work on it."""
    action: EnvironmentAction | None = None
    """What this engine is doing to it."""
    tick: EnvironmentTicked | None = None
    problem: Problem | None = None
    """Why the last job failed."""


class ChosenEngine(Value):
    """An engine by the interpreter that starts it; the built-in one names none."""

    name: str = BUILT_IN
    home: str = ""
    python: str = ""

    @property
    def built_in(self) -> bool:
        return self.name == BUILT_IN


class EngineChoice(Value):
    """Which engine is started, and which one was before it."""

    schema_version: int = 1
    current: ChosenEngine = ChosenEngine()
    previous: ChosenEngine | None = None


class AgentPackages(Value):
    """What was installed for the agent of some project."""

    name: str
    """By its key: `agent-0f5c1d2e3b4a`."""
    asked: str
    """The requirements file that it was installed for; empty where that was never finished."""
    wanted: bool
    """Whether that file still asks for just this."""
    home: str
    bytes: int


class EnvironmentList(Value):
    """All environments, the engine that is chosen, and the one that answers."""

    environments: list[EnvironmentView]
    agents: list[AgentPackages] = Field(default_factory=list)
    choice: EngineChoice
    running: ChosenEngine
    problem: Problem | None = None
    """Why the choice cannot be read; the built-in engine is started then."""


class ActOnEnvironment(Request):
    """What is wanted of it; asked again, it is under way or done already."""

    action: EnvironmentAction


class UseEngine(Request):
    """The engine that is started from now on: the built-in one, an environment's, or, by its home,
    the previous one."""

    name: str
    home: str = ""
