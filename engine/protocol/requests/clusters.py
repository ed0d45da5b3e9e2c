"""Clusters: servers with Tinker's API that sample and train, their settings, what a test of the
connection found, and SkyRL's server, which an engine can run as one."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, ValidationError

from engine.protocol.addresses import normal_address
from engine.protocol.base import Request, Value
from engine.protocol.problems import ConfigError, Problem

KEY_VARIABLE = "TINKER_API_KEY"
"""Environment variable from which commands read the API key of a cluster."""
ClusterClient = Literal["tinker-json", "tinker"]
"""Environment with the SDK that speaks a cluster's version of the protocol."""


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
        raise _invalid(error) from None


def _invalid(error: ValidationError) -> ConfigError:
    first = error.errors(include_url=False, include_context=False)[0]
    return ConfigError.of("cluster.invalid", f"{first['msg']}.", where=str(first["loc"][0]))


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


class ClusterSpec(Value):
    """Settings of a cluster. Its API key is never part of them."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")
    """Local name of the cluster."""
    address: Annotated[str, AfterValidator(normal_address)]
    """Base URL of its API; an unencrypted one only on this machine (loopback), as through an SSH
    tunnel."""
    client: ClusterClient = "tinker"
    """SDK to use: `tinker-json` for SkyRL 0.3, `tinker` for the hosted service."""
    host: str = ""
    """Server (SSH) through whose tunnel the address is reached, as seen from that server; empty is
    a direct connection."""
    skyrl: SkyrlSettings | None = None
    """Settings with which Atelier starts SkyRL's server as this cluster, on `host` or on this
    machine; None for a server that was started elsewhere."""

    @property
    def place(self) -> str:
        """Identity of the cluster: address, and the server it is reached through; for
        one that Atelier starts, whose port may change, its name and machine."""
        if self.skyrl is not None:
            return f"{self.name} on {self.host or 'this machine'}"
        return f"{self.address} on {self.host}" if self.host else self.address


class ClusterModel(Value):
    """Base model that a cluster serves."""

    name: str
    max_context: int | None = None
    """Maximum context in tokens, if the cluster tells it."""


class ClusterReport(Value):
    """Result of a connection test."""

    models: list[ClusterModel]
    client: str
    """Name and version of the SDK."""
    seconds: float
    """Duration of the test."""


class ClusterView(Value):
    """Listed cluster with its latest connection test in this engine."""

    spec: ClusterSpec
    has_key: bool = False
    """Whether the engine has an API key for it."""
    report: ClusterReport | None = None
    problem: Problem | None = None
    """Why the latest test failed."""
    server: SkyrlServer | None = None
    """SkyRL's server as Atelier runs it for this cluster; None while its machine is not connected,
    and for clusters that were started elsewhere."""


class ClusterList(Value):
    clusters: list[ClusterView]


class CheckCluster(Request):
    """Connection test of settings that need not be in the list."""

    spec: ClusterSpec
    key: str = Field(default="", repr=False, max_length=1000)
    """API key; empty uses the key that was lent for this cluster and address."""


class LendClusterKey(Request):
    """API key of a cluster, kept in memory for the life of the engine; empty removes it."""

    key: str = Field(repr=False, max_length=1000)


def cluster_spec(
    name: str, address: str, client: ClusterClient = "tinker", host: str = ""
) -> ClusterSpec:
    """Settings of a cluster as a person typed them. Raises ConfigError with one sentence about the
    first invalid field, which it names in `where`."""
    try:
        return ClusterSpec(name=name, address=address, client=client, host=host)
    except ValidationError as error:
        field = str(error.errors(include_url=False, include_context=False)[0]["loc"][0])
        messages = {
            "name": "The name must begin with a letter or digit, and consist of at most 63 "
            "letters, digits, dots, hyphens and underscores.",
            "address": "The base URL must begin with https:// (or http:// on this machine) and "
            "contain no user name or API key.",
            "client": "The SDK must be tinker or tinker-json.",
        }
        raise ConfigError.of("cluster.invalid", messages[field], where=field) from None


class StartSkyrl(Request):
    """Start of the server on the machine of the engine that receives this."""

    cluster: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")
    settings: SkyrlSettings


class DiscardSaved(Request):
    """Deletion of a snapshot or saved state, which SkyRL's API does not offer."""

    cluster: str
    path: str = Field(max_length=400)
    """Path at the server: `tinker://MODEL/weights/NAME`."""


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


def launch_request(settings: SkyrlSettings, nodes: int, port: int) -> LaunchRequest:
    """Question as a person typed it. Raises ConfigError as `skyrl_settings` does."""
    try:
        return LaunchRequest(settings=settings, nodes=nodes, port=port)
    except ValidationError as error:
        raise _invalid(error) from None


class LaunchCommand(Value):
    title: str
    """Place where the command is executed, such as "First node"."""
    command: str


class LaunchCommands(Value):
    commands: list[LaunchCommand]
