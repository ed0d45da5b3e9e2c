"""Driver of sweeps: starts their runs one after another, and stops those that are pruned."""

import asyncio
import sys

from engine.protocol.problems import ConfigError, ModelError, Problem
from engine.protocol.records.runs import RunOfSweep
from engine.protocol.records.sweeps import SweepRecord, SweepRun, SweepState, SweepTrial
from engine.runtime.closing import cancel
from engine.runtime.ids import ulid
from engine.server.event_stream import Broadcast
from engine.server.services.library import Library
from engine.server.services.runs.lifecycle import RunLifecycle
from engine.server.services.runs.queue import RunQueue
from engine.server.services.runs.start import make_sweep_run
from engine.server.services.runs.work import problem_of
from engine.server.services.sweeps.store import SweepStore
from engine.storage.run_folder.run import SPEC
from engine.training.sweep.changes import MOST_FAILURES, over_budget, with_run, with_state
from engine.training.sweep.plan import config_of, with_next_trial
from engine.training.sweep.record import ACTIVE
from engine.training.sweep.results import failures_in_a_row, may_continue, next_run
from engine.training.sweep.tracker import BY_HAND, PAUSED, PRUNED, RunTracker
from engine.trust.projects import require_trust

BUSY = ("run.device_busy",)
"""Problems of a run that say nothing about its trial."""
GATHER_S = 0.05
"""Seconds from a change of a run until it is read, so that changes in quick succession share it."""


class SweepDriver:
    """Background task that works on the oldest active sweep. Queued runs of a person go first."""

    def __init__(
        self,
        store: SweepStore,
        library: Library,
        lifecycle: RunLifecycle,
        queue: RunQueue,
        broadcast: Broadcast,
    ) -> None:
        self._store, self._library = store, library
        self._lifecycle, self._queue, self._broadcast = lifecycle, queue, broadcast
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._running = ""
        """Id of the sweep whose run is active, starting or ending."""
        lifecycle.on_ended(self._changed.set)

    def wake(self) -> None:
        """Consider all sweeps again after a command: unload inactive ones, and start runs of active
        ones."""
        self._store.release_inactive(keep=self._running)
        self._changed.set()
        if not self._closed and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._work(), name="sweeps")

    async def close(self) -> None:
        """Stop working; sweeps stay active on disk, and a run that is active is not touched."""
        self._closed = True
        if self._task:
            await cancel(self._task)

    async def _work(self) -> None:
        while sweep_id := self._store.oldest_active:
            try:
                await self._advance(sweep_id)
            except Exception as error:  # noqa: BLE001 - the last resort: it is said and stored
                await self._pause(sweep_id, problem_of(error))
            self._store.release_inactive()

    async def _pause(self, sweep_id: str, problem: Problem) -> None:
        if self._store.active(sweep_id) is None:
            return
        try:
            await self._store.change(sweep_id, lambda r: with_state(r, "paused", problem))
        except OSError as error:  # a full disk: it is shown as interrupted from now on
            sys.stderr.write(f"{problem}\n{error}\n")
            self._store.release(sweep_id)

    async def _advance(self, sweep_id: str) -> None:
        """Do the next thing of a sweep: propose a trial, run one of its runs, or end."""
        record = self._store.active(sweep_id)
        if record is None:
            return
        if problem := over_budget(record):
            await self._end(sweep_id, problem)
            return
        if next_run(record.trials) is None:
            longer = await asyncio.to_thread(with_next_trial, record)
            if longer is None:
                await self._end(sweep_id, None)
            else:
                trials = {"trials": longer.trials}
                await self._store.change(sweep_id, lambda r: r.model_copy(update=trials))
            return
        if await self._turn(sweep_id):
            self._running = sweep_id
            try:
                await self._run(sweep_id)
            finally:
                self._running = ""

    async def _turn(self, sweep_id: str) -> bool:
        """Wait until no run is active and none is queued; False if the sweep was paused."""
        while self._store.active(sweep_id):
            self._changed.clear()
            if await self._queue.settled() and not self._lifecycle.active:
                return True
            await self._store.change(
                sweep_id, lambda r: with_state(r, "waiting") if r.state in ACTIVE else r
            )
            await self._changed.wait()
        return False

    async def _run(self, sweep_id: str) -> None:
        """Begin or resume the next run of a sweep, and follow it to its end."""
        async with self._lifecycle.starting:
            await self._lifecycle.settle()
            record = self._store.active(sweep_id)
            found = next_run(record.trials) if record else None
            if self._lifecycle.active or found is None:
                return
            trial, run = found
            try:
                run, tracker = await self._begin(sweep_id, trial, run)
            except (ConfigError, ModelError) as error:
                failed = run.model_copy(update={"state": "failed", "problem": error.problem})
                await self._close_run(sweep_id, trial.number, failed)
                return
        try:
            if run.state == "running":
                run = await self._follow(sweep_id, trial.number, run.run_id, tracker)
            await self._close_run(sweep_id, trial.number, run, tracker.reason)
        except Exception:  # nobody follows the run any more, which may wait for a decision
            if active := self._lifecycle.active.get(run.run_id):
                active.run.orders.stop("Sweep paused after an error.")
            raise

    async def _begin(
        self, sweep_id: str, trial: SweepTrial, run: SweepRun
    ) -> tuple[SweepRun, RunTracker]:
        """Begin a run, or resume it where it stopped. Its id is stored before it exists, so that a
        crash at any moment leaves a run that is found again. Raises AtelierError."""
        project = self._store.folder(sweep_id).parents[1]
        require_trust(project)
        run = run.model_copy(update={"run_id": run.run_id or ulid(), "state": "running"})
        record = await self._store.change(
            sweep_id, lambda r: _begin_state(with_run(r, trial.number, run))
        )
        folder = project / "runs" / run.run_id
        if not (folder / SPEC).exists():
            place = RunOfSweep(
                sweep=sweep_id, trial=trial.number, seed=run.seed, values=trial.values
            )
            await make_sweep_run(project, config_of(record, trial, run), run.run_id, place)
        self._library.remember(run.run_id, folder)
        tracker = RunTracker(folder, run)
        stored = await asyncio.to_thread(tracker.read)
        if stored.state in ("running", "failed"):  # a failed one is here to be tried again
            holds = [step for step in record.prune_at if step >= stored.step]
            await self._lifecycle.begin(folder, holds=holds)
            new_run = self._lifecycle.active.get(run.run_id)
            if new_run and self._store.active(sweep_id) is None:  # paused in the meantime
                new_run.run.orders.stop(PAUSED.format(record.name))
            return stored.model_copy(update={"state": "running", "problem": None}), tracker
        return stored, tracker

    async def _follow(
        self, sweep_id: str, number: int, run_id: str, tracker: RunTracker
    ) -> SweepRun:
        """Record the progress of an active run until it ends, and decide where it waits."""
        async with self._broadcast.subscribe(run_id) as subscriber:
            while True:
                subscriber.woken.clear()
                active = run_id in self._lifecycle.active
                run = await asyncio.to_thread(tracker.read)
                if not active:
                    return run
                await self._record(sweep_id, number, run.model_copy(update={"state": "running"}))
                self._decide(sweep_id, number, run)
                await subscriber.woken.wait()
                await asyncio.sleep(GATHER_S)

    def _decide(self, sweep_id: str, number: int, run: SweepRun) -> None:
        """Let a run continue after a validation at which it waits, or stop it; stop it also when
        the budget is used up."""
        record, active = self._store.loaded(sweep_id), self._lifecycle.active.get(run.run_id)
        if record is None or active is None:
            return
        orders = active.run.orders
        trial = record.trials[number - 1]
        for step in sorted(orders.holds):
            if not any(point.step == step for point in run.curve):
                break
            if may_continue(record, trial, step):
                orders.release(step)
            else:
                orders.stop(
                    f"{PRUNED} {record.name}: after step {step} the run was not among the best "
                    f"1/{record.config.sweep.reduction_factor}."
                )
        if over_budget(record):
            orders.stop(f"The budget of sweep {record.name} is used up.")

    async def _record(self, sweep_id: str, number: int, run: SweepRun) -> None:
        """Store the progress of a run, unless only its time and cost have changed."""
        record = self._store.loaded(sweep_id)
        if record is not None and _differs(record, number, run):
            await self._store.change(sweep_id, lambda r: with_run(r, number, run))

    async def _close_run(self, sweep_id: str, number: int, run: SweepRun, reason: str = "") -> None:
        """Store how a run ended. The sweep pauses if a person stopped the run or another engine
        uses the device, and stops after `MOST_FAILURES` failed trials in a row."""
        if run.problem and run.problem.code in BUSY:
            waiting = run.model_copy(update={"state": "running", "problem": None})
            await self._store.change(sweep_id, lambda r: with_run(r, number, waiting), always=True)
            await self._pause(sweep_id, run.problem)
            return
        record = await self._store.change(
            sweep_id, lambda r: with_run(r, number, run), always=True
        )  # `always`: no run is active any more, which the view shows
        if run.state == "running" and reason.startswith(BY_HAND):
            problem = Problem(
                code="sweep.run_stopped",
                message=f"Run {run.name} was stopped by hand.",
                hint="Resume the sweep to continue with this run.",
            )
            await self._pause(sweep_id, problem)
        elif run.state == "failed" and failures_in_a_row(record.trials) >= MOST_FAILURES:
            problem = Problem(
                code="sweep.failures",
                message=f"{MOST_FAILURES} trials in a row failed. {_message(run.problem)}",
                hint="Fix the cause, then resume: failed runs are started again.",
            )
            await self._end(sweep_id, problem)

    async def _end(self, sweep_id: str, problem: Problem | None) -> None:
        """Stop a sweep for this problem, or finish it, unless a person has paused it meanwhile."""
        state: SweepState = "stopped" if problem else "finished"
        await self._store.change(
            sweep_id, lambda r: with_state(r, state, problem) if r.state in ACTIVE else r
        )


def _begin_state(record: SweepRecord) -> SweepRecord:
    """The record in state `running`, unless a person has paused it meanwhile."""
    return with_state(record, "running") if record.state in ACTIVE else record


def _differs(record: SweepRecord, number: int, run: SweepRun) -> bool:
    stored = next(one for one in record.trials[number - 1].runs if one.seed == run.seed)
    before = (stored.state, stored.step, stored.curve, stored.name)
    return before != (run.state, run.step, run.curve, run.name)


def _message(problem: Problem | None) -> str:
    return f"The last failure: {problem.message}" if problem else ""
