"""Remote servers over SSH: settings, state, prompts and requests."""

from typing import Literal

from pydantic import Field

from engine.protocol.base import Request, Value
from engine.protocol.problems import Problem
from engine.protocol.records.machine.hardware import Check
from engine.protocol.records.runs import RunSummary
from engine.protocol.requests.runs import EngineInfo

HostState = Literal[
    "away", "connecting", "asking", "installing", "starting", "connected", "reconnecting", "stopped"
]
"""State of a connection. `away`: not connected. `asking`: waiting for the person's answer.
`reconnecting`: retried without limit. `stopped`: retrying cannot help until the problem is
fixed."""

QuestionKind = Literal["host_key", "passphrase", "password", "code"]
"""Kind of an SSH prompt; `code` is any other prompt, usually a second factor."""

Transport = Literal["asyncssh", "system"]
"""SSH transport; `system` is the machine's own `ssh`, for hardware keys, Kerberos and unusual
ProxyCommands."""


class HostSpec(Value):
    """Settings of a remote server."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")
    """Local name of the server."""
    address: str = Field(pattern=r"^[^\s-][^\s]*$")
    """SSH address: an alias of ~/.ssh/config, or [user@]host[:port]."""
    transport: Transport = "asyncssh"
    folder: str = ""
    """Atelier's folder on the server; empty is `.atelier-engine` in the home folder."""
    engine: Literal["auto", "engine-cpu", "engine-gpu"] = "auto"
    """Engine package to install; `auto` selects by the server's hardware."""
    offline: bool | None = None
    """Whether packages are uploaded over SSH; None: only if the server cannot reach the package
    index."""


class Question(Value):
    """Prompt that a person must answer before a connection continues."""

    id: str
    kind: QuestionKind
    host: str
    """Server that prompts, as `user@name:port`; with a jump host it may differ from the
    destination."""
    via: str = ""
    """Jump host in use, if any."""
    prompt: str
    """Text of the prompt; untrusted, shown as plain text."""
    detail: str = ""
    """Kind and SHA-256 fingerprint of a host key."""
    echo: bool = False
    """Whether the typed answer may be displayed."""


class Answer(Request):
    """Answer to a prompt; None cancels the connection. A host key is accepted with `yes`."""

    question: str
    value: str | None = Field(default=None, repr=False)


class FarCard(Value):
    """Graphics card of a server, as reported by its driver."""

    name: str
    memory_bytes: int
    driver: str


class FarEngine(Value):
    """Engine installed on a server."""

    id: str
    """Version, build and kind: `0.1.0-3f2a9c1be07d-engine-cpu`."""
    current: bool = False
    previous: bool = False


class HostReport(Value):
    """Survey of a server (hardware, disk, Python), made before anything is installed."""

    server: str
    folder: str
    """Path of Atelier's folder on the server, which may not exist yet."""
    os: str
    machine: str
    """Machine type from `uname -m`."""
    host: str
    libc: str
    """glibc version; empty for another C library."""
    cores: int
    memory_bytes: int
    free_bytes: int
    filesystem: str
    shared: bool
    """Whether the folder is on a network file system."""
    cards: list[FarCard]
    python: str
    """Version and path of a suitable Python, `3.11 /usr/bin/python3.11`; empty if there is none."""
    engine: Literal["engine-cpu", "engine-gpu"]
    """Engine package that would be installed."""
    download_bytes: int
    installed_bytes: int
    engines: list[FarEngine]
    checks: list[Check] = Field(default_factory=list)


class HostTick(Value):
    """Progress of a job on a server; never stored."""

    stage: Literal[
        "surveying", "uploading", "installing", "testing", "syncing", "fetching", "removing"
    ]
    words: str
    done: int = 0
    total: int = 0
    """Total, usually in bytes; 0 if unknown."""


class HostView(Value):
    """State of a remote server."""

    spec: HostSpec
    state: HostState
    job: str = ""
    """Running job: `install`, `remove` …"""
    problem: Problem | None = None
    notices: list[Problem] = Field(default_factory=list)
    """Problems of refused requests and data of this server, oldest first."""
    questions: list[Question] = Field(default_factory=list)
    tick: HostTick | None = None
    report: HostReport | None = None
    """Last survey."""
    info: EngineInfo | None = None
    """Information about the server's engine while connected."""
    latency_s: float | None = None
    failures: int = 0
    """Number of consecutive failed connection attempts."""
    retry_at: float = 0.0
    """Unix time in seconds of the next connection attempt."""
    outdated: bool = False
    """Whether the server's engine was built from other source code than the local one."""
    behind: int = 0
    """Number of events on the server that are not mirrored yet."""
    runs: list[RunSummary] = Field(default_factory=list)
    """Runs on the server, without their rewards."""


class HostList(Value):
    """All servers; `revision` increases with every change."""

    revision: int
    hosts: list[HostView]
    known: list[str] = Field(default_factory=list)
    """Aliases of ~/.ssh/config that are not servers yet."""


class AddHost(Request):
    """Add a server or change its settings, without connecting."""

    spec: HostSpec


class ActOnHost(Request):
    """Act on a server. `connect` also skips the wait before the next attempt; `remove` deletes all
    files of Atelier on the server; `forget` only removes it from the list."""

    action: Literal[
        "connect", "disconnect", "install", "roll_back", "take_over", "stop_engine", "remove",
        "forget",
    ]  # fmt: skip


class SendRun(Request):
    """Move a local run to a server and continue it there."""

    host: str


class MoveTicked(Value):
    """Progress of a move in bytes; never stored."""

    kind: Literal["tick"] = "tick"
    done: int
    total: int


class Moved(Value):
    """Move completed and verified."""

    kind: Literal["moved"] = "moved"
    path: str
    """Path of the local folder."""


class Reached(Value):
    """Address and version printed by an engine on a server."""

    port: int = Field(ge=1, le=65535)
    token: str = Field(repr=False, pattern=r"^[A-Za-z0-9_-]{1,200}$")
    pid: int = Field(ge=0)
    api: tuple[int, int]
    version: str = Field(max_length=200)
    build: str = Field(max_length=200)
    workspace: str = Field(max_length=4096)
