"""Lifecycle of runs: begin, open for labels, lock while inactive, end. One is active at a time."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path

from engine.hardware.machine import devices_of
from engine.integrations.scripts.session import ScriptSession
from engine.protocol.events.run import RubricChanged, RunExtended, RunStarted
from engine.protocol.problems import Problem, Refused
from engine.protocol.records.runs import ACTIVE_STATES, RunSummary
from engine.server.event_stream import Broadcast
from engine.server.services.arena import ArenaService
from engine.server.services.library import Library
from engine.server.services.runs.open_runs import OpenRun, OpenRuns
from engine.server.services.runs.work import STOPPED, ActiveRun, ActiveRuns, work
from engine.server.services.runs.workers import RunResources
from engine.server.services.tracking import TrackingService
from engine.storage.run_folder.run import Run, locked, read_spec
from engine.trust.projects import require_run_trust


class RunLifecycle:
    """Begins and ends the runs of an engine."""

    def __init__(
        self,
        library: Library,
        broadcast: Broadcast,
        resources: RunResources,
        active: ActiveRuns,
        arena: ArenaService,
        tracking: TrackingService,
    ) -> None:
        self.active = active
        self.starting = asyncio.Lock()
        """Held from the check that the device is free until the run is active."""
        self.stop_reason = STOPPED
        self._library, self._broadcast = library, broadcast
        self._resources, self._arena, self._tracking = resources, arena, tracking
        self._open = OpenRuns(broadcast)
        self._listeners: list[Callable[[], None]] = []
        self._closed = False

    def on_ended(self, listener: Callable[[], None]) -> None:
        """Call `listener` whenever a run has ended and the device is free."""
        self._listeners.append(listener)

    def summary(self, run_id: str) -> RunSummary:
        """Summary of a run, with current state and number of steps if it is active."""
        summary = self._library.summary(self._library.find(run_id))
        active = self.active.get(run_id)
        if active is None or summary.state not in ACTIVE_STATES:
            return summary
        orders = active.run.orders
        stopping = active.stopping or orders.stop_after_step
        state = "stopping" if stopping else summary.state
        return summary.model_copy(update={"state": state, "steps": orders.steps})

    async def begin(
        self, folder: Path, steps: int | None = None, holds: Iterable[int] = ()
    ) -> RunSummary:
        """Begin or resume the run in `folder`, up to `steps` in total (None: as planned). The run
        waits after the validation of each step in `holds` until it is released. Raises Refused if
        the run is not trusted, which is possible for one that an earlier engine queued."""
        spec = read_spec(folder)
        await asyncio.to_thread(require_run_trust, folder)
        await self._arena.unload_idle()
        async with self._open.none_of(spec.id):
            run = Run(folder, spec, lambda tick: self._broadcast.announce(spec.id, tick))
        try:
            await self._say_started(run, steps)
        except BaseException:
            run.close()
            raise
        run.orders.holds = set(holds)
        self.active[spec.id] = ActiveRun(run, self._work(run))
        self._tracking.begin(folder, spec)
        return self.summary(spec.id)

    async def _say_started(self, run: Run, steps: int | None) -> None:
        """Store that a run begins or resumes, up to `steps` in total."""
        spec = run.spec
        resumed = spec.parent is not None or bool(run.reader.events_of("run.started"))
        last = self._library.summary(run.folder).step if resumed else None
        planned = spec.updates
        run.orders.steps = steps or planned
        run.orders.rubric = _last_rubric(run)
        device = await asyncio.to_thread(devices_of, spec.config.backend)
        await run.say(RunStarted(spec=spec, resumed_from=last, device=device))
        if run.orders.steps != planned:
            await run.say(RunExtended(steps=run.orders.steps))

    async def begin_script(self, folder: Path, session: ScriptSession) -> None:
        """Begin the run in `folder`, whose rollouts are made by the script of this session."""
        spec = read_spec(folder)
        self._resources.script_sessions[spec.id] = session
        self._resources.gateway.add_script(session.script.key, session.sessions)
        try:
            await self.begin(folder)
        except BaseException:
            self._close_session(spec.id, None)
            raise

    async def ended(self, run_id: str) -> None:
        """Wait until a run has ended and is closed; returns at once if it is not active."""
        if active := self.active.get(run_id):
            await asyncio.wait([active.task])

    async def require_free(self) -> None:
        """Wait until ended runs have closed. Raises Refused if another run is active or the engine
        exits."""
        await self.settle()
        if self._closed:
            raise Refused.of(
                "engine.leaving", "This engine is being stopped.", "Try again in a moment."
            )
        for active in self.active.values():
            spec = active.run.spec
            raise Refused.of(
                "run.busy",
                f"{spec.project} is {_activity_of(active.run)} on this machine ({spec.name}).",
                "That run belongs to a sweep. Queue your run to start it before the sweep's next "
                "run, or pause the sweep."
                if spec.sweep
                else "Wait for that run, or stop it first.",
            )

    async def settle(self) -> None:
        """Wait until runs that have ended have also closed their workers."""
        ended = [
            active.task
            for run_id, active in self.active.items()
            if self.summary(run_id).state not in ACTIVE_STATES
        ]
        if ended:
            await asyncio.wait(ended)

    @contextlib.asynccontextmanager
    async def opened(self, run_id: str) -> AsyncIterator[OpenRun]:
        """Context manager that opens a run for writing, active or not. Raises Refused if another
        engine uses it."""
        await self.settle()
        if active := self.active.get(run_id):
            yield OpenRun(active.run, active.labels)
            return
        async with self._open.use(run_id, self._library.folder(run_id)) as opened:
            yield opened

    @contextlib.asynccontextmanager
    async def resting(self, run_id: str) -> AsyncIterator[Path]:
        """Lock the folder of an inactive run for the block and yield it. Raises Refused if the run
        is active or in use."""
        await self.settle()
        folder = self._library.find(run_id)
        if run_id in self.active:
            raise Refused.of(
                "run.lives",
                "This run is active.",
                "Stop the run first, or wait until it has ended.",
            )
        await self._tracking.forget(run_id)
        async with self._open.none_of(run_id):
            with locked(folder):
                yield folder

    async def close(self) -> None:
        """End all runs, which can be resumed, and refuse new ones. Acknowledged data is stored."""
        self._closed = True
        await self.settle()
        await asyncio.gather(*(one.stop(self.stop_reason) for one in self.active.values()))

    async def close_open_runs(self) -> None:
        await self._open.close()

    async def _work(self, run: Run) -> None:
        run_id = run.spec.id
        try:
            await work(run, self._resources)
        finally:
            del self.active[run_id]
            self._close_session(run_id, self._library.summary(run.folder).problem)
            self._resources.credentials.forget_run(run_id)
            self._broadcast.announce(run_id, None)
            self._tracking.ended(run_id)
            for listener in self._listeners:
                listener()

    def _close_session(self, run_id: str, problem: Problem | None) -> None:
        if session := self._resources.script_sessions.pop(run_id, None):
            self._resources.gateway.close(session.script.key)
            session.close(problem)


def _activity_of(run: Run) -> str:
    return "evaluating" if run.spec.kind == "evaluation" else "training"


def _last_rubric(run: Run) -> str:
    events = run.reader.events_of("rubric.changed")
    return events[-1].source if events and isinstance(events[-1], RubricChanged) else ""
