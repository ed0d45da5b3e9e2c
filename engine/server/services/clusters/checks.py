"""Check of the cluster that a project selects, for Setup."""

from collections.abc import Iterable
from pathlib import Path
from urllib.parse import urlsplit

from engine.policy.tinker.refusals import refuse_config
from engine.protocol.config.project import ProjectConfig
from engine.protocol.events.run import PolicyLoaded
from engine.protocol.problems import AtelierError, StoreError
from engine.protocol.records.machine.hardware import Check
from engine.protocol.records.runs import RunSummary
from engine.protocol.requests.clusters import ClusterSpec
from engine.remote.cluster_list import find_cluster
from engine.storage.run_folder.run import run_reader

CHECK = "Cluster"
"""Name of the check in Setup."""


def cluster_checks(config: ProjectConfig, runs: Iterable[RunSummary]) -> list[Check]:
    """Check of the cluster that the settings select: whether it is in the list and can carry them,
    and how it was measured in the newest of `runs`; empty without a cluster."""
    name = config.backend.cluster
    if not name:
        return []
    try:
        spec = find_cluster(name)
        refuse_config(config)
    except AtelierError as error:
        problem = error.problem
        return [Check(name=CHECK, state="bad", words=problem.message, hint=problem.hint)]
    words = f"{name} samples and trains {_where(spec)}."
    used = (run for run in runs if run.settings.get("backend.cluster") == name)
    if measured := next(filter(None, map(_measured, used)), ""):
        words += f" {measured}"
    return [Check(name=CHECK, state="good", words=words)]


def _where(spec: ClusterSpec) -> str:
    if spec.skyrl is not None:
        return f"with SkyRL on {spec.host or 'this machine'}"
    if spec.host:
        return f"at {spec.address}, reached through {spec.host}"
    return f"at {urlsplit(spec.address).hostname}"


def _measured(run: RunSummary) -> str:
    """Behaviour of the cluster as measured by a run; empty if it has not come that far."""
    try:
        with run_reader(Path(run.path)) as reader:
            loaded = reader.events_of("policy.loaded")
    except StoreError:  # a damaged run measured nothing; the Runs page reports it
        return ""
    profiles = [event.cluster for event in loaded if isinstance(event, PolicyLoaded)]
    profile = profiles[-1] if profiles else None
    return f"Measured in {run.name}: {profile.words}." if profile else ""
