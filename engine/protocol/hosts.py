"""Servers that train for us, reached over SSH: what is known of them, asked and answered."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from engine.protocol.machine import Check
from engine.protocol.problems import Problem
from engine.protocol.records import RunSummary
from engine.protocol.requests import EngineInfo, Request


class Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


HostState = Literal[
    "away", "connecting", "asking", "installing", "starting", "connected", "reconnecting", "stopped"
]
"""`away`: nobody has asked for it. `asking`: it waits for a person's answer. `reconnecting`: it is
tried again by itself, for ever. `stopped`: trying again would not help before somebody has done
something; the problem says what."""

QuestionKind = Literal["host_key", "passphrase", "password", "code"]
"""`code` is anything else that a server asks for: a second factor, mostly."""

Transport = Literal["asyncssh", "system"]
"""`system` is the machine's own `ssh`: for keys in hardware, Kerberos, unusual ProxyCommands."""


class HostSpec(Value):
    """A server as the person wrote it down."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")
    """What it is called here."""
    address: str = Field(pattern=r"^[^\s-][^\s]*$")
    """As `ssh` takes it: an alias of ~/.ssh/config, or [user@]host[:port]."""
    transport: Transport = "asyncssh"
    folder: str = ""
    """Where Atelier lives there; empty is `.atelier-engine` in the home."""
    engine: Literal["auto", "engine-cpu", "engine-gpu"] = "auto"
    """Which engine is installed; `auto` goes by what the server has."""
    offline: bool | None = None
    """Whether packages are brought through the tunnel; None: where it has no way to the index."""


class Question(Value):
    """Something that only a person can answer, while a connection waits."""

    id: str
    kind: QuestionKind
    host: str
    """The server that asks, as `user@name:port`; behind jumps that is not the one we go to."""
    via: str = ""
    """The server that it is reached through, where there is one."""
    prompt: str
    """What it asks, in a sentence; text of theirs is theirs, and plain."""
    detail: str = ""
    """Of a host key: kind and SHA-256 fingerprint."""
    echo: bool = False
    """Whether what is typed may be seen."""


class Answer(Request):
    """To a question; None gives up. A host key is answered with `yes`."""

    question: str
    value: str | None = Field(default=None, repr=False)


class FarCard(Value):
    """A graphics card of a server, as its driver tells."""

    name: str
    memory_bytes: int
    driver: str


class FarEngine(Value):
    """An engine of ours that is installed on a server."""

    id: str
    """Version, build and kind: `0.1.0-3f2a9c1be07d-engine-cpu`."""
    current: bool = False
    previous: bool = False


class HostReport(Value):
    """What a server is and has; made before anything is installed there."""

    server: str
    folder: str
    """Where Atelier lives there, or would."""
    os: str
    machine: str
    """As `uname -m` says it."""
    host: str
    libc: str
    """Of glibc; empty where there is another one."""
    cores: int
    memory_bytes: int
    free_bytes: int
    filesystem: str
    shared: bool
    """It is a file system of a network."""
    cards: list[FarCard]
    python: str
    """`3.11 /usr/bin/python3.11`; empty where none fits."""
    engine: Literal["engine-cpu", "engine-gpu"]
    """What would be installed."""
    download_bytes: int
    installed_bytes: int
    engines: list[FarEngine]
    checks: list[Check] = Field(default_factory=list)


class HostTick(Value):
    """How far a job on a server is; never stored."""

    stage: Literal["looking", "bringing", "installing", "trying", "syncing", "fetching", "removing"]
    words: str
    done: int = 0
    total: int = 0
    """Bytes, mostly; 0 where nobody knows."""


class HostView(Value):
    """A server as it is now."""

    spec: HostSpec
    state: HostState
    job: str = ""
    """What was asked for and is not done yet: `install`, `remove` …"""
    problem: Problem | None = None
    notices: list[Problem] = Field(default_factory=list)
    """What this server asked for or sent and was refused, oldest first."""
    questions: list[Question] = Field(default_factory=list)
    tick: HostTick | None = None
    report: HostReport | None = None
    """What was found when it was last looked at."""
    info: EngineInfo | None = None
    """What its engine says of itself, while it is connected."""
    latency_s: float | None = None
    failures: int = 0
    """Tries in a row that have failed."""
    retry_at: float = 0.0
    """When it is tried again, in seconds since 1970."""
    outdated: bool = False
    """Its engine was made from another source than ours."""
    behind: int = 0
    """Events that are known of there and not here yet."""
    runs: list[RunSummary] = Field(default_factory=list)
    """All that its engine knows of; their rewards are left out."""


class HostList(Value):
    """All servers; `revision` grows with every change."""

    revision: int
    hosts: list[HostView]
    known: list[str] = Field(default_factory=list)
    """Aliases of ~/.ssh/config that are not among them."""


class AddHost(Request):
    """Write a server down, or change what is written; nothing is sent anywhere."""

    spec: HostSpec


class ActOnHost(Request):
    """`connect` also hurries what waits; `remove` clears everything of ours away there; `forget`
    only strikes it from the list."""

    action: Literal[
        "connect", "disconnect", "install", "roll_back", "take_over", "stop_engine", "remove",
        "forget",
    ]  # fmt: skip


class SendRun(Request):
    """A run of this machine goes on a server from now on."""

    host: str


class MoveTicked(Value):
    """How far something is that changes machines, in bytes; never stored."""

    kind: Literal["tick"] = "tick"
    done: int
    total: int


class Moved(Value):
    """It has arrived, and was checked."""

    kind: Literal["moved"] = "moved"
    path: str
    """Here."""


class Reached(Value):
    """The line by which an engine on a server says where it listens and what it is."""

    port: int = Field(ge=1, le=65535)
    token: str = Field(repr=False, pattern=r"^[A-Za-z0-9_-]{1,200}$")
    pid: int = Field(ge=0)
    api: tuple[int, int]
    version: str = Field(max_length=200)
    build: str = Field(max_length=200)
    workspace: str = Field(max_length=4096)
