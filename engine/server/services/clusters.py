"""Clusters: the user's list, their API keys in memory, and tests of the connection."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from engine.policy.tinker.check import check_cluster
from engine.policy.tinker.refusals import refuse_config
from engine.protocol.config.project import ProjectConfig
from engine.protocol.events.run import PolicyLoaded
from engine.protocol.problems import AtelierError, ConfigError, Problem, Refused, StoreError
from engine.protocol.records.machine.hardware import Check
from engine.protocol.records.runs import RunSummary
from engine.protocol.requests.clusters import (
    CheckCluster,
    ClusterList,
    ClusterReport,
    ClusterSpec,
    ClusterView,
)
from engine.remote.cluster_list import (
    find_cluster,
    put_cluster,
    read_clusters,
    remove_cluster,
    require_encryption,
)
from engine.runtime.closing import cancel
from engine.server.services.runs.work import ActiveRuns
from engine.storage.run_folder.run import run_reader

CHECK = "Cluster"
"""Name of the check in Setup."""
ConnectionTest = Callable[[ClusterSpec, str], Awaitable[ClusterReport]]
"""Connection test with settings and API key; raises AtelierError."""


@dataclass(frozen=True)
class Tested:
    """Result of a connection test with these settings and this API key."""

    spec: ClusterSpec
    key: str = field(repr=False)
    report: ClusterReport | None
    problem: Problem | None


class ClusterService:
    """Clusters of the user, as this engine knows them. `keys` (cluster → API key) are those that
    runs use."""

    def __init__(
        self,
        keys: MutableMapping[str, str],
        active: ActiveRuns,
        check: ConnectionTest = check_cluster,
    ) -> None:
        self._keys, self._active, self._check = keys, active, check
        self._tested: dict[str, Tested] = {}
        """Newest test of each cluster, also of one that is not in the list yet."""
        self._checking: dict[tuple[ClusterSpec, str], asyncio.Task[Tested]] = {}

    @property
    def busy(self) -> bool:
        return bool(self._checking)

    async def close(self) -> None:
        """Cancel connection tests."""
        await cancel(*self._checking.values())

    async def listed(self) -> ClusterList:
        """All clusters by name, with the results of their connection tests in this engine."""
        specs = await asyncio.to_thread(read_clusters)
        return ClusterList(clusters=[self._view(spec) for spec in specs])

    async def put(self, spec: ClusterSpec) -> None:
        """Add a cluster or change its settings. A key that was lent for another address is
        forgotten. Raises ConfigError for an address that is not encrypted, Refused if an active run
        uses the cluster with other settings."""
        earlier = await self._find(spec.name)
        if earlier and earlier != spec:
            self._require_unused(spec.name, "then change the cluster")
        await asyncio.to_thread(put_cluster, spec)
        if earlier and earlier.address != spec.address:
            self._keys.pop(spec.name, None)

    async def remove(self, name: str) -> None:
        """Remove a cluster from the list, and forget its key. Raises Refused if it is unknown, or
        used by an active run."""
        await self._require(name)
        self._require_unused(name, "then remove the cluster")
        await asyncio.to_thread(remove_cluster, name)
        self._keys.pop(name, None)
        self._tested.pop(name, None)

    async def lend_key(self, name: str, key: str) -> None:
        """Keep the API key of a cluster in memory; an empty one removes it. Raises Refused for an
        unknown cluster, ConfigError for a key that cannot be part of an HTTP header."""
        await self._require(name)
        check_key(key)
        if key:
            self._keys[name] = key
        else:
            self._keys.pop(name, None)

    async def check(self, name: str) -> ClusterView:
        """Test the connection to a cluster in the list, and return the result. Raises Refused for
        an unknown cluster, ConfigError for an address that is not encrypted."""
        spec = await asyncio.to_thread(find_cluster, name)
        return await self.check_settings(CheckCluster(spec=spec))

    async def check_settings(self, request: CheckCluster) -> ClusterView:
        """Test the connection with these settings, which need not be in the list; an equal request
        joins a test that is running. Raises ConfigError for an address that is not encrypted, or a
        key that cannot be part of an HTTP header."""
        spec = request.spec
        require_encryption(spec)
        check_key(request.key)
        key = request.key or await self._key_for(spec)
        task = self._checking.get((spec, key))
        if task is None:
            task = asyncio.create_task(self._test(spec, key), name=f"check of cluster {spec.name}")
            self._checking[spec, key] = task
        await asyncio.wait([task])
        if task.cancelled():
            raise Refused.of(
                "engine.leaving", "This engine is being stopped.", "Try again in a moment."
            )
        tested = task.result()
        return ClusterView(
            spec=spec, has_key=bool(key), report=tested.report, problem=tested.problem
        )

    async def _test(self, spec: ClusterSpec, key: str) -> Tested:
        try:
            tested = Tested(spec, key, await self._check(spec, key), None)
        except AtelierError as error:
            tested = Tested(spec, key, None, error.problem)
        finally:
            del self._checking[spec, key]
        self._tested[spec.name] = tested
        return tested

    async def _key_for(self, spec: ClusterSpec) -> str:
        """Key lent for the cluster of this name; empty if that has another address."""
        listed = await self._find(spec.name)
        return self._keys.get(spec.name, "") if listed and listed.address == spec.address else ""

    def _view(self, spec: ClusterSpec) -> ClusterView:
        """View of a cluster, with the newest test if it had these settings and this key."""
        tested = self._tested.get(spec.name)
        if tested is None or (tested.spec, tested.key) != (spec, self._keys.get(spec.name, "")):
            return ClusterView(spec=spec, has_key=spec.name in self._keys)
        return ClusterView(
            spec=spec, has_key=spec.name in self._keys, report=tested.report, problem=tested.problem
        )

    async def _find(self, name: str) -> ClusterSpec | None:
        specs = await asyncio.to_thread(read_clusters)
        return next((spec for spec in specs if spec.name == name), None)

    async def _require(self, name: str) -> ClusterSpec:
        if spec := await self._find(name):
            return spec
        raise Refused.of(
            "cluster.unknown",
            f"There is no cluster called {name}.",
            "Add it in Settings → Clusters, or with `atelier clusters add`.",
        )

    def _require_unused(self, name: str, then: str) -> None:
        for active in self._active.values():
            if active.run.config.backend.cluster == name:
                raise Refused.of(
                    "cluster.in_use",
                    f"{active.run.spec.name} of {active.run.spec.project} is using {name}.",
                    f"Stop that run or wait for it, {then}.",
                )


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
    words = f"{name} samples and trains at {urlsplit(spec.address).hostname}."
    used = (run for run in runs if run.settings.get("backend.cluster") == name)
    if measured := next(filter(None, map(_measured, used)), ""):
        words += f" {measured}"
    return [Check(name=CHECK, state="good", words=words)]


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


def check_key(key: str) -> None:
    """Raise ConfigError for an API key that cannot be part of an HTTP header."""
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise ConfigError.of(
            "cluster.bad_key",
            "The API key contains a space or a character that API keys never have.",
            "Copy the key again, without spaces and line breaks.",
            where="key",
        )
