"""Clusters: servers with Tinker's API that sample and train, their settings and what a test of the
connection found."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, ValidationError

from engine.protocol.addresses import normal_address
from engine.protocol.base import Request, Value
from engine.protocol.problems import ConfigError, Problem
from engine.protocol.requests.cluster_servers import SkyrlServer, SkyrlSettings

KEY_VARIABLE = "TINKER_API_KEY"
"""Environment variable from which commands read the API key of a cluster."""
ClusterClient = Literal["tinker-json", "tinker"]
"""Environment with the SDK that speaks a cluster's version of the protocol."""


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
        """What tells this cluster from others: address, and the server it is reached through; for
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
