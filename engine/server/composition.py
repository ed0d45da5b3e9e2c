"""Composition of the engine: every service is made here, once, from the others that it needs."""

import asyncio
import time
from dataclasses import dataclass, field
from pathlib import Path

from engine.protocol.events.base import BaseEvent
from engine.remote.registry import HostService
from engine.rollout.gateway.gateway import Gateway
from engine.server.event_stream import Broadcast
from engine.server.services.activity import Activity
from engine.server.services.arena import ArenaService
from engine.server.services.child_processes import ChildProcesses
from engine.server.services.credentials import Credentials
from engine.server.services.environments import EnvironmentService
from engine.server.services.exports import ExportService
from engine.server.services.home_lease import HomeLease
from engine.server.services.home_requests import HomeRequests
from engine.server.services.judges import JudgeService
from engine.server.services.library import Library
from engine.server.services.runs.control import RunControl
from engine.server.services.runs.lifecycle import RunLifecycle
from engine.server.services.runs.queue import RunQueue
from engine.server.services.runs.scripts import ScriptRuns
from engine.server.services.runs.work import ActiveRuns
from engine.server.services.runs.workers import RunResources
from engine.server.services.tracking import TrackingService

IDLE_EXIT_S = 600.0
"""Without work and without clients for this long, an engine ends."""


@dataclass(kw_only=True)
class Services:
    """Services of one engine, over one workspace."""

    workspace: Path
    token: str
    library: Library
    broadcast: Broadcast
    gateway: Gateway
    activity: Activity
    home_requests: HomeRequests
    home_lease: HomeLease
    credentials: Credentials
    resources: RunResources
    judges: JudgeService
    arena: ArenaService
    tracking: TrackingService
    lifecycle: RunLifecycle
    queue: RunQueue
    control: RunControl
    exports: ExportService
    environments: EnvironmentService
    scripts: ScriptRuns
    hosts: HostService
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the engine is to end."""
    started_at: float = field(default_factory=time.time)

    def is_idle(self) -> bool:
        """Whether there is no work, no listener and no request for `IDLE_EXIT_S` seconds."""
        works = (self.exports, self.tracking, self.environments, self.hosts)
        busy = self.lifecycle.active or any(work.busy for work in works)
        return self.activity.idle_s > IDLE_EXIT_S and not busy and not self.broadcast.listeners

    async def open(self) -> None:
        """Begin what an engine does without being asked: queued runs, connected servers."""
        self.queue.advance()
        await self.hosts.open()

    async def close(self) -> None:
        """End all work; what is acknowledged is stored, and runs can be resumed."""
        self.home_requests.close()
        await self.hosts.close()
        await self.environments.close()
        await self.queue.close()
        await self.lifecycle.close()
        await self.tracking.close()
        await self.exports.close()
        await self.judges.close()
        await self.arena.close()
        await self.lifecycle.close_open_runs()
        self.broadcast.close()


def compose(workspace: Path, token: str, port: int) -> Services:
    """Make the services of an engine that listens on this port. Call inside the event loop."""
    library = Library(workspace)
    broadcast = Broadcast(asyncio.get_running_loop())
    gateway = Gateway()
    children = ChildProcesses()
    home_requests = HomeRequests()
    home_lease = HomeLease(home_requests)
    credentials = Credentials(home_requests)
    resources = RunResources(gateway, f"http://127.0.0.1:{port}/v1", credentials, children)
    active = ActiveRuns()
    judges = JudgeService(credentials)
    arena = ArenaService(resources)
    tracking = TrackingService(library, active, home_lease)
    lifecycle = RunLifecycle(library, broadcast, resources, active, arena, tracking)
    queue = RunQueue(library, lifecycle)
    control = RunControl(library, lifecycle, queue, credentials)
    exports = ExportService(lifecycle.opened)
    environments = EnvironmentService(active)
    scripts = ScriptRuns(workspace, library, lifecycle, resources)

    def mirrored(run_id: str, tick: BaseEvent | None) -> None:
        """Announce a change of a mirrored run: a tick, or without one stored events."""
        broadcast.announce(run_id, tick)
        if tick is None:
            tracking.on_mirrored(run_id)

    hosts = HostService(workspace, library.projects, library.all_runs, mirrored, credentials.keys)
    children.register(judges, arena, exports, tracking, environments, hosts)
    return Services(
        workspace=workspace,
        token=token,
        library=library,
        broadcast=broadcast,
        gateway=gateway,
        activity=Activity(),
        home_requests=home_requests,
        home_lease=home_lease,
        credentials=credentials,
        resources=resources,
        judges=judges,
        arena=arena,
        tracking=tracking,
        lifecycle=lifecycle,
        queue=queue,
        control=control,
        exports=exports,
        environments=environments,
        scripts=scripts,
        hosts=hosts,
    )
