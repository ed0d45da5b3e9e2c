"""Remote servers reached over SSH: their settings, state, questions and requests."""

from typing import Literal

from pydantic import Field

from engine.protocol.base import Request, Value
from engine.protocol.problems import Problem
from engine.protocol.records.hardware import Check
from engine.protocol.records.runs import RunSummary
from engine.protocol.requests.runs import EngineInfo

HostState = Literal[
    "away", "connecting", "asking", "installing", "starting", "connected", "reconnecting", "stopped"
]
"""`away`: not connected. `asking`: waiting for a person's answer. `reconnecting`: retried without
limit. `stopped`: a retry would not help before somebody acts; the problem says how."""

QuestionKind = Literal["host_key", "passphrase", "password", "code"]
"""`code` is anything else that a server asks for: a second factor, mostly."""

Transport = Literal["asyncssh", "system"]
"""`system` is the machine's own `ssh`: for keys in hardware, Kerberos, unusual ProxyCommands."""


class HostSpec(Value):
    """Settings of a server, as the person entered them."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")
    """Name of the server on this machine."""
    address: str = Field(pattern=r"^[^\s-][^\s]*$")
    """As `ssh` takes it: an alias of ~/.ssh/config, or [user@]host[:port]."""
    transport: Transport = "asyncssh"
    folder: str = ""
    """Atelier's folder on the server; empty is `.atelier-engine` in the home folder."""
    engine: Literal["auto", "engine-cpu", "engine-gpu"] = "auto"
    """Engine package to install; `auto` chooses by the server's hardware."""
    offline: bool | None = None
    """Whether packages are uploaded through the tunnel; None: only where the server cannot reach
    the package index."""


class Question(Value):
    """Question that only a person can answer, while a connection waits."""

    id: str
    kind: QuestionKind
    host: str
    """Server that asks, as `user@name:port`; behind a jump host it may differ from the
    destination."""
    via: str = ""
    """Jump host through which the asking server is reached, if any."""
    prompt: str
    """Question in one sentence; text from the server is untrusted and shown as plain text."""
    detail: str = ""
    """Kind and SHA-256 fingerprint of a host key."""
    echo: bool = False
    """Whether the typed answer may be shown."""


class Answer(Request):
    """Answer to a question; None cancels the connection. A host key is accepted with `yes`."""

    question: str
    value: str | None = Field(default=None, repr=False)


class FarCard(Value):
    """Graphics card of a server, as its driver reports it."""

    name: str
    memory_bytes: int
    driver: str


class FarEngine(Value):
    """Atelier engine that is installed on a server."""

    id: str
    """Version, build and kind: `0.1.0-3f2a9c1be07d-engine-cpu`."""
    current: bool = False
    previous: bool = False


class HostReport(Value):
    """Survey of a server (hardware, disk, Python), made before anything is installed there."""

    server: str
    folder: str
    """Atelier's folder on the server, whether it exists yet or not."""
    os: str
    machine: str
    """Machine type, as `uname -m` prints it."""
    host: str
    libc: str
    """Version of glibc; empty for another C library."""
    cores: int
    memory_bytes: int
    free_bytes: int
    filesystem: str
    shared: bool
    """Whether the folder is on a network file system."""
    cards: list[FarCard]
    python: str
    """Version and path of a suitable Python, `3.11 /usr/bin/python3.11`; empty where there is
    none."""
    engine: Literal["engine-cpu", "engine-gpu"]
    """Engine package that would be installed."""
    download_bytes: int
    installed_bytes: int
    engines: list[FarEngine]
    checks: list[Check] = Field(default_factory=list)


class HostTick(Value):
    """Progress of a job on a server; never stored."""

    stage: Literal["looking", "bringing", "installing", "trying", "syncing", "fetching", "removing"]
    words: str
    done: int = 0
    total: int = 0
    """Bytes, mostly; 0 where nobody knows."""


class HostView(Value):
    """State of a server."""

    spec: HostSpec
    state: HostState
    job: str = ""
    """Job in progress: `install`, `remove` …"""
    problem: Problem | None = None
    notices: list[Problem] = Field(default_factory=list)
    """Problems of requests and data of this server that were refused, oldest first."""
    questions: list[Question] = Field(default_factory=list)
    tick: HostTick | None = None
    report: HostReport | None = None
    """Result of the last survey."""
    info: EngineInfo | None = None
    """Information from the server's engine, while it is connected."""
    latency_s: float | None = None
    failures: int = 0
    """Number of failed connection attempts in a row."""
    retry_at: float = 0.0
    """Unix time in seconds of the next connection attempt."""
    outdated: bool = False
    """Whether the server's engine was built from other source code than this machine's."""
    behind: int = 0
    """Number of events that exist there and are not copied yet."""
    runs: list[RunSummary] = Field(default_factory=list)
    """All runs in the engine's list, without their rewards."""


class HostList(Value):
    """All servers; `revision` grows with every change."""

    revision: int
    hosts: list[HostView]
    known: list[str] = Field(default_factory=list)
    """Aliases of ~/.ssh/config that are not in the list of servers."""


class AddHost(Request):
    """Add a server or change its settings; nothing is sent to it."""

    spec: HostSpec


class ActOnHost(Request):
    """`connect` also ends a wait for the next attempt; `remove` deletes every file of Atelier on
    the server; `forget` only removes it from the list."""

    action: Literal[
        "connect", "disconnect", "install", "roll_back", "take_over", "stop_engine", "remove",
        "forget",
    ]  # fmt: skip


class SendRun(Request):
    """Move a run of this machine to a server, where it continues."""

    host: str


class MoveTicked(Value):
    """Progress of a move between machines, in bytes; never stored."""

    kind: Literal["tick"] = "tick"
    done: int
    total: int


class Moved(Value):
    """Event: the move is complete and was checked."""

    kind: Literal["moved"] = "moved"
    path: str
    """Folder on this machine."""


class Reached(Value):
    """Line by which an engine on a server reports its address and its version."""

    port: int = Field(ge=1, le=65535)
    token: str = Field(repr=False, pattern=r"^[A-Za-z0-9_-]{1,200}$")
    pid: int = Field(ge=0)
    api: tuple[int, int]
    version: str = Field(max_length=200)
    build: str = Field(max_length=200)
    workspace: str = Field(max_length=4096)
