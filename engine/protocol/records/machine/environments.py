"""Managed Python environments, and engines that run in them."""

from typing import Literal

from pydantic import Field

from engine.protocol.base import Request, Value
from engine.protocol.problems import Problem

BUILT_IN = "built-in"
"""Engine of the interpreter that runs studio and command line."""

EnvironmentState = Literal["absent", "partial", "ready", "broken"]
"""`partial`: an installation was interrupted and can be resumed."""
EnvironmentStage = Literal[
    "waiting",
    "resolving",
    "checking",
    "downloading",
    "installing",
    "testing",
    "verifying",
    "removing",
]
EnvironmentAction = Literal["install", "verify", "repair", "remove", "cancel"]


class EnvironmentTicked(Value):
    """Progress of a job; never stored."""

    kind: Literal["tick"] = "tick"
    stage: EnvironmentStage
    words: str
    done: int
    """Number of finished packages."""
    total: int
    share: float
    """Progress of the whole job, 0 to 1."""


class EnvironmentView(Value):
    """Current state of one environment."""

    name: str
    title: str
    purpose: str
    """Purpose in one sentence."""
    needs: str
    """Hardware it is made for."""
    unfit: str = ""
    """Why it cannot be installed on this machine."""
    lacks: str = ""
    """Missing requirements of this machine; it can be installed nevertheless."""
    engine: bool = False
    """Whether it contains a complete engine that can replace the built-in one."""
    state: EnvironmentState
    home: str = ""
    python: str = ""
    wrong: list[str] = Field(default_factory=list)
    """Damage found by the last check, one sentence each."""
    bytes: int
    """Size on disk in bytes; estimated if not installed."""
    download_bytes: int
    arrived: int = 0
    """Number of packages installed before an interruption."""
    packages: int = 0
    elsewhere: bool = False
    """Whether another process of this user is working on it."""
    action: EnvironmentAction | None = None
    """Action that this engine is performing on it."""
    tick: EnvironmentTicked | None = None
    problem: Problem | None = None
    """Why the last job failed."""


class ChosenEngine(Value):
    """Engine by its environment's name and folder (`home`), and the interpreter that starts it;
    folder and interpreter are empty for the built-in one."""

    name: str = BUILT_IN
    home: str = ""
    python: str = ""

    @property
    def built_in(self) -> bool:
        return self.name == BUILT_IN


class EngineChoice(Value):
    """Selected engine and the previously selected one."""

    schema_version: int = 1
    current: ChosenEngine = ChosenEngine()
    previous: ChosenEngine | None = None


class AgentPackages(Value):
    """Environment with the packages of a project's agent."""

    name: str
    """Name with a hash of the requirements: `agent-0f5c1d2e3b4a`."""
    requirements: str
    """Requirements file that it was installed for; empty if the installation never finished."""
    wanted: bool
    """Whether the file still has exactly these requirements."""
    home: str
    bytes: int


class EnvironmentList(Value):
    """All environments, the selected engine and the running one."""

    environments: list[EnvironmentView]
    agents: list[AgentPackages] = Field(default_factory=list)
    choice: EngineChoice
    running: ChosenEngine
    problem: Problem | None = None
    """Why the selection cannot be read; the built-in engine is started instead."""


class ActOnEnvironment(Request):
    """Act on an environment. Idempotent: a repeated request finds the action running or done."""

    action: EnvironmentAction


class UseEngine(Request):
    """Select the engine to start: the built-in one or an environment's, by `name`; or one version
    of an environment, such as the previous one, by its folder `home`."""

    name: str
    home: str = ""
