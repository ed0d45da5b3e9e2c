"""Supervisor of runs: starts, controls, ends and queues them."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from engine.environments.agent import packages_python
from engine.judge.access import Access
from engine.judge.rubric import parse_rubric
from engine.judge.ruler import check_fit
from engine.machine.hardware import devices_of
from engine.outside.desk import Desk
from engine.protocol.checkpoint_events import CheckpointBranched
from engine.protocol.events import RubricChanged, RunExtended, RunQueued, RunStarted, RunStopped
from engine.protocol.problems import AtelierError, Problem, Refused
from engine.protocol.records import LIVING, RunSpec, RunSummary
from engine.protocol.requests import Command, StartEvaluation, StartRun
from engine.protocol.trust import AddressConfirmation
from engine.rollout.gateway import Gateway
from engine.rollout.renderer import living_pids as renderer_pids
from engine.run import Run, locked, read_spec
from engine.server import evaluating
from engine.server.arena import ArenaDesk
from engine.server.errands import Errands
from engine.server.exporting import ExportDesk
from engine.server.judging import JudgeDesk
from engine.server.library import Library
from engine.server.open_runs import Opened, OpenRuns
from engine.server.resuming import refuse_extension, refuse_resumption
from engine.server.starting import make_folder, make_run
from engine.server.stream import Broadcast
from engine.server.tracking import TrackDesk
from engine.server.wire import path_of
from engine.server.work import STOPPED, Living, last_step, log_to, work
from engine.server.workers import House
from engine.trust.projects import require_run_trust, require_trust


class Lent(NamedTuple):
    """Keys and addresses that a home machine lends for one run, in memory only."""

    keys: dict[str, str]
    addresses: frozenset[AddressConfirmation]


class Supervisor:
    """Supervisor of all runs of an engine; one run trains at a time."""

    def __init__(self, library: Library, broadcast: Broadcast, gateway: Gateway) -> None:
        self._library = library
        self._broadcast = broadcast
        self._living: dict[str, Living] = {}
        self._queue: list[Path] = []
        self._advancing: asyncio.Task[None] | None = None
        self.beginning = asyncio.Lock()
        self._leaving = False
        self._keys: dict[str, str] = {}
        self.judge_keys: dict[str, str] = {}
        """API keys by provider, lent by studio or CLI for as long as this engine lives."""
        self.stop_reason = STOPPED
        self._open = OpenRuns(broadcast)
        self.errands = Errands()
        self._lent: dict[str, Lent] = {}
        """Keys that a home machine lends for one run; forgotten with its end."""
        self.desk = JudgeDesk(self.access)
        self.house = House(gateway, self.access, lambda: self.spared)
        self.arena = ArenaDesk(self.house)
        self.exports = ExportDesk(self.opened)
        self.tracking = TrackDesk(library, self._living.__contains__, partial(log_to, self._living))
        self.others: Callable[[], list[int]] = list
        """PIDs of processes that serve other things than runs."""
        self.environment_pids: set[int] = set()
        """PIDs of processes that install or check an environment."""

    @property
    def spared(self) -> list[int]:
        """PIDs of child processes that belong to no run."""
        known = [*self.desk.pids, *self.arena.pids, *self.exports.pids, *renderer_pids()]
        return [*known, *self.tracking.pids, *self.environment_pids, *self.others()]

    def access(self, spec: RunSpec) -> Access:
        """Access of a run to providers."""
        if spec.keys_at_home:
            return Access({}, partial(self.errands.ask, spec.id))
        lent = self._lent.get(spec.id, Lent({}, frozenset()))
        return Access(self.judge_keys | lent.keys, confirmed=lent.addresses)

    def _lend(self, run_id: str, request: StartRun | StartEvaluation) -> None:
        """Keep what a home machine lends a run: keys, and addresses confirmed there."""
        self._lent[run_id] = Lent(request.lent, frozenset(request.lent_addresses))

    @property
    def living(self) -> int:
        return len(self._living)

    async def start(self, request: StartRun) -> RunSummary:
        """Check what can be checked, then begin, or wait in the queue where that is asked. Raises
        ConfigError, ModelError, Refused."""
        async with self.beginning:
            if known := await self._admit(request.key, request.queue):
                return known
            project = path_of(request.project)
            require_trust(project)
            folder, spec = await make_run(project, request)
            await self._tell_parent(spec)
            self._lend(spec.id, request)
            return await self._launch(folder, spec, request.key)

    async def admit(self) -> None:
        """Raises Refused where the device is busy."""
        await self._settle()
        self._refuse_second()

    async def begin_outside(self, folder: Path, desk: Desk) -> None:
        """Begin an outside run for the script at this desk; all checks were made."""
        spec = read_spec(folder)
        self.house.desks[spec.id] = desk
        self.house.gateway.open_door(desk.script.key, desk.door)
        try:
            await self._begin(folder)
        except BaseException:
            self._close_desk(spec.id, None)
            raise

    async def ended(self, run_id: str) -> None:
        """Wait until a run has ended completely."""
        if living := self._living.get(run_id):
            await asyncio.wait([living.task])

    def _close_desk(self, run_id: str, problem: Problem | None) -> None:
        if desk := self.house.desks.pop(run_id, None):
            self.house.gateway.close(desk.script.key)
            desk.close(problem)

    async def start_evaluation(self, request: StartEvaluation) -> RunSummary:
        """Start an evaluation, or queue it. Raises ConfigError, ModelError, Refused."""
        async with self.beginning:
            if known := await self._admit(request.key, request.queue):
                return known
            project = path_of(request.project)
            require_trust(project)
            planned = await asyncio.to_thread(evaluating.plan, project, request)
            spec, scenarios = planned.spec, planned.scenarios
            if cut := self._cut_off(planned.same):
                folder, spec = cut, read_spec(cut)
            elif planned.earlier and not scenarios:
                return self._library.summary(planned.earlier[0])
            else:
                await packages_python(project, spec.config.agent)
                folder = make_folder(project, spec, scenarios)
            self._lend(spec.id, request)
            return await self._launch(folder, spec, request.key)

    def _cut_off(self, folders: Sequence[Path]) -> Path | None:
        """The first of these runs that did not come to its end."""
        ended = ("stopped", "failed")
        return next((one for one in folders if self._library.summary(one).state in ended), None)

    async def _admit(self, key: str, queue: bool) -> RunSummary | None:
        """Run that was started with this key already. Raises Refused where the device is busy and
        the request does not wait."""
        if key and (known := self._keys.get(key)):
            return self.summary(known)
        await self._settle()
        if not (queue and self._living):
            self._refuse_second()
        return None

    async def _launch(self, folder: Path, spec: RunSpec, key: str) -> RunSummary:
        """Begin a run or queue it; a repeated request with the same key finds it."""
        self._library.remember(spec.id, folder)
        self._keys[key or spec.id] = spec.id
        if self._living:
            return await self._wait_in_queue(folder, spec)
        return await self._begin(folder)

    async def command(self, run_id: str, command: Command) -> RunSummary:
        """Carry out a command. Raises Refused where the run's state does not allow it."""
        await self._settle()
        if command.action in ("resume", "extend"):
            return await self._resume(run_id, command)
        living = self._living.get(run_id)
        if living is None and command.action in ("stop_now", "stop_after_step"):
            await self._leave_queue(run_id)
            return self.summary(run_id)
        if living is None:
            raise Refused.of(
                "run.not_living", "This run is not going on.", "Resume it, or start another."
            )
        orders = living.run.orders
        match command.action:
            case "pause":
                orders.give(paused=True)
            case "continue":
                orders.give(paused=False, stop=False)
            case "reviewed":
                orders.give(reviewed=True)
            case "use_rubric":
                await _change_rubric(living.run, command.rubric)
            case "stop_after_step":
                orders.give(stop=True)
            case "keep":
                orders.keep = True
            case "stop_now":
                living.stopping = True
                living.task.cancel("You stopped it.")
                await asyncio.wait([living.task])
        return self.summary(run_id)

    def summary(self, run_id: str) -> RunSummary:
        summary = self._library.summary(self._library.find(run_id))
        living = self._living.get(run_id)
        if living is None or summary.state not in LIVING:
            return summary
        orders = living.run.orders
        stopping = living.stopping or orders.stop_after_step
        state = "stopping" if stopping else summary.state
        return summary.model_copy(update={"state": state, "steps": orders.steps})

    async def close(self) -> None:
        """End all runs after what is acknowledged, and take no more; they can be resumed."""
        self._leaving = True
        if self._advancing:
            await asyncio.gather(self._advancing, return_exceptions=True)
        await self._settle()
        tasks = [living.task for living in self._living.values()]
        for task in tasks:
            task.cancel(self.stop_reason)
        if tasks:
            await asyncio.wait(tasks)
        await self.tracking.close()
        await self.exports.close()
        await self.desk.close()
        await self.arena.close()
        await self._open.close()

    @contextlib.asynccontextmanager
    async def opened(self, run_id: str) -> AsyncIterator[Opened]:
        """Open a run for labels and trials, living or not. Raises Refused where another engine uses
        it."""
        await self._settle()
        if living := self._living.get(run_id):
            yield Opened(living.run, living.labeller)
            return
        async with self._open.use(run_id, self._library.folder(run_id)) as opened:
            yield opened

    @contextlib.asynccontextmanager
    async def resting(self, run_id: str) -> AsyncIterator[Path]:
        """Lock a run's folder. Raises Refused where the run goes on, or is in use."""
        await self._settle()
        folder = self._library.find(run_id)
        if run_id in self._living:
            raise Refused.of("run.lives", "This run goes on.", "Stop it first, or wait.")
        await self.tracking.forget(run_id)
        async with self._open.none_of(run_id):
            with locked(folder):
                yield folder

    async def _resume(self, run_id: str, command: Command) -> RunSummary:
        living = self._living.get(run_id)
        if command.action == "extend":
            refuse_extension(self.summary(run_id))
        if living and command.action == "extend" and command.steps:
            living.run.orders.steps = max(command.steps, self.summary(run_id).step)
            await living.run.say(RunExtended(steps=living.run.orders.steps))
            return self.summary(run_id)
        if living:
            living.run.orders.give(paused=False, stop=False)
            return self.summary(run_id)
        folder = self._library.folder(run_id)
        summary = self._library.summary(folder)
        refuse_resumption(summary, command.steps)
        async with self.beginning:
            self._refuse_second()
            self._queue = [waiting for waiting in self._queue if waiting != folder]
            return await self._begin(folder, steps=command.steps or summary.steps)

    async def _begin(self, folder: Path, steps: int | None = None) -> RunSummary:
        """Begin a run. Raises Refused where it is not trusted, also for one that an earlier engine
        left in the queue."""
        spec = read_spec(folder)
        await asyncio.to_thread(require_run_trust, folder)
        await self.arena.rest()
        async with self._open.none_of(spec.id):
            run = Run(folder, spec, lambda tick: self._broadcast.announce(spec.id, tick))
        goes_on = spec.parent is not None or bool(run.reader.events_of("run.started"))
        last = self._library.summary(folder).step if goes_on else None
        planned = spec.updates
        run.orders.steps = steps or planned
        run.orders.rubric = _last_rubric(run)
        device = await asyncio.to_thread(devices_of, spec.config.backend)
        await run.say(RunStarted(spec=spec, resumed_from=last, device=device))
        if run.orders.steps != planned:
            await run.say(RunExtended(steps=run.orders.steps))
        task = asyncio.create_task(self._work(run), name=f"run {spec.name}")
        self._living[spec.id] = Living(run, task)
        self.tracking.begin(folder, spec)
        return self.summary(spec.id)

    async def _work(self, run: Run) -> None:
        try:
            await work(run, self.house)
        finally:
            del self._living[run.spec.id]
            self._close_desk(run.spec.id, self._library.summary(run.folder).problem)
            self._lent.pop(run.spec.id, None)
            self._broadcast.announce(run.spec.id, None)
            self.tracking.ended(run.spec.id)
            self.take_up_queue()

    # The queue: runs that wait until the device is free, oldest first

    def take_up_queue(self) -> None:
        """Begin the next queued run, also one of an earlier engine, if no run goes on."""
        if not self._leaving and (self._advancing is None or self._advancing.done()):
            self._advancing = asyncio.create_task(self._advance(), name="queue")

    async def _advance(self) -> None:
        known = await asyncio.to_thread(self._library.all_runs)
        waiting = [Path(run.path) for run in reversed(known) if run.state == "queued"]
        async with self.beginning:
            self._queue += [folder for folder in waiting if folder not in self._queue]
            while self._queue and not self._living and not self._leaving:
                folder = self._queue.pop(0)
                try:
                    await self._begin(folder)
                except AtelierError as error:  # its folder is gone or damaged: the next one
                    sys.stderr.write(f"{error}\n")

    async def _wait_in_queue(self, folder: Path, spec: RunSpec) -> RunSummary:
        async with self._open.use(spec.id, folder) as opened:
            await opened.run.say(RunQueued(spec=spec))
        self._queue.append(folder)
        return self.summary(spec.id)

    async def _leave_queue(self, run_id: str) -> None:
        """Take a run out of the queue. Raises Refused where it is not in it."""
        folder = self._library.folder(run_id)
        if self._library.summary(folder).state != "queued":
            raise Refused.of("run.not_living", "This run is not going on.")
        self._queue = [waiting for waiting in self._queue if waiting != folder]
        async with self._open.use(run_id, folder) as opened:
            await opened.run.say(RunStopped(step=0, reason="You took it out of the queue."))

    async def _tell_parent(self, spec: RunSpec) -> None:
        """Record the branch in the parent run, so that it keeps the checkpoint."""
        if spec.parent is None or not spec.parent.run_id:
            return
        with contextlib.suppress(Refused):  # another engine works on it: the branch has its copy
            async with self.opened(spec.parent.run_id) as opened:
                branched = CheckpointBranched(step=spec.parent.step, child=spec.id, name=spec.name)
                await opened.run.say(branched)

    async def _settle(self) -> None:
        """Wait for runs that have ended and are only closing their workers."""
        ended = [
            living.task
            for run_id, living in self._living.items()
            if self.summary(run_id).state not in LIVING
        ]
        if ended:
            await asyncio.wait(ended)

    def _refuse_second(self) -> None:
        if self._leaving:
            raise Refused.of(
                "engine.leaving", "This engine is being stopped.", "Start again in a moment."
            )
        for living in self._living.values():
            raise Refused.of(
                "run.busy",
                f"{living.run.spec.project} is {_doing(living.run)} on this machine "
                f"({living.run.spec.name}).",
                "Wait for it, or stop it first.",
            )


def _doing(run: Run) -> str:
    return "evaluating" if run.spec.kind == "evaluation" else "training"


async def _change_rubric(run: Run, source: str) -> None:
    """Change a run's rubric. Raises Refused without a judge for it, ConfigError if unusable."""
    judge = run.config.judge
    if not (judge.enabled and judge.models):
        raise Refused.of("run.no_judge", "This run has no judge that goes by a rubric.")
    check_fit(judge, parse_rubric(source))
    await run.say(RubricChanged(step=last_step(run) + 1, source=source))
    run.orders.rubric = source


def _last_rubric(run: Run) -> str:
    events = run.reader.events_of("rubric.changed")
    return events[-1].source if events and isinstance(events[-1], RubricChanged) else ""
