"""Connection test of a cluster."""

import tempfile
import time
from pathlib import Path

from engine.policy.tinker.cluster import Cluster, ClusterAccess
from engine.protocol.problems import PolicyError
from engine.protocol.requests.clusters import ClusterReport
from engine.runtime.child import ChildDied


async def check_cluster(access: ClusterAccess) -> ClusterReport:
    """Connect to a cluster and list its models. Raises PolicyError with the reason (no answer,
    refused key, another protocol version), EnvironmentMissing if the SDK cannot be installed."""
    start_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="atelier-") as scratch:
        try:
            cluster = await Cluster.connect(access, Path(scratch) / "log")
        except ChildDied as died:
            raise PolicyError(died.problem) from died
        await cluster.close()
    return ClusterReport(
        models=cluster.models, client=cluster.client, seconds=time.monotonic() - start_s
    )
