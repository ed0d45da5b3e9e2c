"""Servers that train for us, reached over SSH: what is known of them, asked and answered."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from engine.protocol.machine import Card
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
