"""SkyRL's server, which an engine runs on its machine as a cluster."""

from typing import Literal

from pydantic import Field, ValidationError

from engine.protocol.base import Request, Value
from engine.protocol.problems import ConfigError, Problem

ServerState = Literal["off", "installing", "starting", "running", "restarting", "failed"]
"""`installing`: its environment is installed first. `restarting`: it has ended by itself and is
started again. `failed`: it did not start, or keeps ending."""


class SkyrlSettings(Value):
    """Settings of a server."""

    model: str = Field(min_length=1)
    """Base model: a name in the list of models, or a folder on the server's machine."""
    adapters: int = Field(default=4, ge=2, le=64)
    """Adapters in memory; one of them is the untrained model."""
    most_rank: int = Field(default=32, ge=1, le=512)
    """Maximum rank of an adapter."""
    sequences: int = Field(default=16, ge=1, le=1024)
    """Maximum number of sequences that are sampled together."""
    micro_batch: int = Field(default=8, ge=1, le=256)
    """Sequences per forward and backward pass."""
    gpus: int = Field(default=1, ge=1, le=64)
    """GPUs that share each weight matrix (tensor parallelism); no effect without a GPU."""


def skyrl_settings(model: str, **values: int) -> SkyrlSettings:
    """Settings as a person typed them. Raises ConfigError with a sentence about the first invalid
    one, which it names in `where`."""
    try:
        return SkyrlSettings.model_validate({"model": model, **values})
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        field = str(first["loc"][0])
        message = first["msg"][0].lower() + first["msg"][1:]
        raise ConfigError.of(
            "cluster.invalid", f"{field.replace('_', ' ')}: {message}.", where=field
        ) from None


class SkyrlServer(Value):
    """State of the server on an engine's machine."""

    state: ServerState = "off"
    cluster: str = ""
    """Name of the cluster that it was started as; empty if off."""
    settings: SkyrlSettings | None = None
    port: int = 0
    """Port on 127.0.0.1 of that machine; 0 if off."""
    environment: str = ""
    """Environment that it runs in: skyrl-gpu or skyrl-cpu."""
    command: str = ""
    """Launch command on that machine."""
    log: str = ""
    """Path of its log on that machine."""
    problem: Problem | None = None
    """Why it failed, or has ended before a restart; with the end of its log."""
    since: float | None = None
    """Time of the last change of state, in seconds since the epoch."""


class StartSkyrl(Request):
    """Start of the server on the machine of the engine that receives this."""

    cluster: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")
    settings: SkyrlSettings


class StartCluster(Request):
    """Start of SkyRL's server for a cluster, which is added to the list."""

    host: str = ""
    """Server that it runs on; empty is this machine."""
    settings: SkyrlSettings


class LaunchRequest(Request):
    """Question for the commands that start SkyRL by hand on several nodes."""

    settings: SkyrlSettings
    nodes: int = Field(default=1, ge=1, le=64)
    port: int = Field(default=8000, ge=1, le=65535)


class LaunchCommand(Value):
    title: str
    """Where the command is executed, such as "First node"."""
    command: str


class LaunchCommands(Value):
    commands: list[LaunchCommand]
