"""Composition root of the engine: every service is created here with its dependencies."""

import asyncio
import time
from pathlib import Path

from engine.protocol.base import BaseEvent
from engine.remote.registry import HostService
from engine.rollout.gateway.gateway import Gateway
from engine.server.event_stream import Broadcast
from engine.server.services.arena import ArenaService
from engine.server.services.child_processes import ChildProcesses
from engine.server.services.clusters.service import ClusterService
from engine.server.services.clusters.skyrl import SkyrlService
from engine.server.services.credentials import Credentials
from engine.server.services.environments import EnvironmentService
from engine.server.services.exports import ExportService
from engine.server.services.home_requests import HomeLease, HomeRequests
from engine.server.services.judges import JudgeService
from engine.server.services.library import Library
from engine.server.services.models import ModelService
from engine.server.services.run_table.summary_cache import open_cache
from engine.server.services.run_table.table import RunTable
from engine.server.services.runs.control import RunControl
from engine.server.services.runs.lifecycle import RunLifecycle
from engine.server.services.runs.queue import RunQueue
from engine.server.services.runs.scripts import ScriptRuns
from engine.server.services.runs.work import ActiveRuns
from engine.server.services.runs.workers import RunResources
from engine.server.services.sweeps.service import SweepService
from engine.server.services.tracking import TrackingService

IDLE_EXIT_S = 600.0
"""Seconds without work and clients after which an engine exits."""


class Services:
    """Services of one engine for one workspace and port. Create them inside the event loop."""

    def __init__(self, workspace: Path, token: str, port: int) -> None:
        self.workspace, self.token = workspace, token
        self.stop = asyncio.Event()
        """Set when the engine is asked to exit."""
        self.started_at = time.time()
        self._used = time.monotonic()
        children = ChildProcesses()
        self._cache = open_cache(workspace / ".atelier")
        self.library = Library(workspace, self._cache)
        self.broadcast = Broadcast(asyncio.get_running_loop())
        self.gateway = Gateway()
        self.home_requests = HomeRequests()
        self.home_lease = HomeLease(self.home_requests)
        self.credentials = Credentials(self.home_requests)
        self.hosts = HostService(
            workspace,
            self.library.projects,
            self.library.all_runs,
            self._mirrored,
            self.credentials.keys,
        )
        active = ActiveRuns()
        self.skyrl = SkyrlService()
        keys = self.credentials.cluster_keys
        self.clusters = ClusterService(keys, active, self.hosts, self.skyrl)
        address = f"http://127.0.0.1:{port}/v1"
        resources = RunResources(
            self.gateway, address, self.credentials, children, self.clusters.access
        )
        self.judges = JudgeService(self.credentials)
        self.arena = ArenaService(resources)
        self.tracking = TrackingService(self.library, active, self.home_lease)
        self.lifecycle = RunLifecycle(
            self.library, self.broadcast, resources, active, self.arena, self.tracking
        )
        self.run_table = RunTable(self.library, self.lifecycle.summary)
        self.queue = RunQueue(self.library, self.lifecycle)
        self.control = RunControl(self.library, self.lifecycle, self.queue, self.credentials)
        self.sweeps = SweepService(self.library, self.lifecycle, self.queue, self.broadcast)
        self.exports = ExportService(self.lifecycle.opened)
        self.environments = EnvironmentService(active)
        self.scripts = ScriptRuns(workspace, self.library, self.lifecycle, resources)
        self.models = ModelService(self.library, self.hosts)
        children.register(
            *(self.arena, self.exports, self.tracking),
            *(self.environments, self.models, self.skyrl),
        )

    def touch(self) -> None:
        """Note a request now: the engine exits only when `IDLE_EXIT_S` seconds have passed since
        the last one."""
        self._used = time.monotonic()

    def is_idle(self) -> bool:
        """Whether there is no work, no listener and no request for `IDLE_EXIT_S` seconds."""
        works = (
            *(self.exports, self.tracking, self.environments),
            *(self.hosts, self.sweeps, self.models, self.clusters, self.skyrl),
        )
        busy = self.lifecycle.active or any(work.busy for work in works)
        idle_s = time.monotonic() - self._used
        return idle_s > IDLE_EXIT_S and not busy and not self.broadcast.listeners

    async def open(self) -> None:
        """Start background work: queued runs, interrupted sweeps and connections to servers."""
        self.queue.advance()
        await self.sweeps.open()
        await self.hosts.open()
        await self.skyrl.open()

    async def close(self) -> None:
        """Stop all work; acknowledged data is stored, and runs can be resumed."""
        self.home_requests.close()
        await self.hosts.close()
        await self.environments.close()
        await self.clusters.close()
        await self.models.close()
        await self.queue.close()
        await self.sweeps.close()
        await self.lifecycle.close()
        await self.tracking.close()
        await self.exports.close()
        await self.judges.close()
        await self.arena.close()
        await self.lifecycle.close_open_runs()
        await self.skyrl.close()
        await self.run_table.close()
        self.broadcast.close()
        if self._cache:
            self._cache.close()

    def _mirrored(self, run_id: str, tick: BaseEvent | None) -> None:
        """Announce a change of a mirrored run: a progress tick, or stored events (None)."""
        self.broadcast.announce(run_id, tick)
        if tick is None:
            self.tracking.on_mirrored(run_id)
