"""Connection test of a cluster."""

from engine.protocol.requests.clusters import ClusterReport, ClusterSpec


async def check_cluster(spec: ClusterSpec, key: str) -> ClusterReport:
    """Connect to a cluster and list its models. Raises PolicyError with the reason (no answer,
    refused key, another protocol version), EnvironmentMissing if the SDK cannot be installed."""
    raise NotImplementedError
