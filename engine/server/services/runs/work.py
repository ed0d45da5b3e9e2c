"""Work on one run from start to end; workers that died are restarted."""

import asyncio
import traceback
from collections.abc import Coroutine
from typing import Any

from engine.hardware.devices import cards_of
from engine.hardware.machine import free_disk, step_disk_need
from engine.integrations.scripts import loop as outside
from engine.models.registry import model_of
from engine.protocol.base import BaseEvent
from engine.protocol.events.run import FINAL, RunFailed, RunStopped, WorkerRestarted
from engine.protocol.problems import AtelierError, Problem, Refused, StoreError
from engine.runtime.child import ChildDied, reap_orphans
from engine.server.lock import device_lock
from engine.server.services.runs import evaluations
from engine.server.services.runs.gpu_memory import require_gpu_memory, with_memory_advice
from engine.server.services.runs.workers import RunResources, policy_of, workers
from engine.storage.run_folder.run import Run
from engine.training import loop
from engine.training.labels.service import LabelService
from engine.training.sft.loop import fine_tune

MOST_RESTARTS = 3
BACK_OFF_S = (1.0, 5.0, 15.0)
STOPPED = "The engine was stopped."


class ActiveRun:
    """Run with the task that works on it."""

    def __init__(self, run: Run, working: Coroutine[Any, Any, None]) -> None:
        self.run = run
        self.labels = LabelService(run)
        self.stopping = False
        self._begun = asyncio.Event()
        self.task = asyncio.create_task(self._begin(working), name=f"run {run.spec.name}")

    async def _begin(self, working: Coroutine[Any, Any, None]) -> None:
        self._begun.set()
        await working

    async def stop(self, reason: str) -> None:
        """Cancel the task for this reason, once, and wait until it has ended."""
        if not self.stopping:
            self.stopping = True
            await self._begun.wait()  # a task cancelled before its first step cleans nothing up
            self.task.cancel(reason)
        await asyncio.wait([self.task])


class ActiveRuns(dict[str, ActiveRun]):
    """Active runs of an engine by run id; at most one trains at a time."""

    async def log(self, run_id: str, level: str, text: str) -> None:
        """Append a tracker's message to the log of a run; `level` is "info" or "warning". No effect
        unless the run is active."""
        if active := self.get(run_id):
            await active.run.log(level, "track", text)


async def work(run: Run, resources: RunResources) -> None:
    """Execute a run until it ends, store its last event in any case (finished, stopped or failed),
    and close it. `resources` are shared by all runs."""
    try:
        cards = await asyncio.to_thread(cards_of, run.config.backend)
        with device_lock(cards, f"{run.spec.name} of {run.spec.project}"):
            await require_gpu_memory(run.config, model_of(run.spec), cards)
            ticking = asyncio.create_task(run.keep_ticking())
            try:
                await _train_with_restarts(run, resources)
            finally:
                ticking.cancel()
    except asyncio.CancelledError as cancelled:
        reason = str(cancelled.args[0]) if cancelled.args else STOPPED
        if not has_ended(run):
            await _say_last(run, RunStopped(step=last_step(run), reason=reason))
    except Exception as error:  # noqa: BLE001 - the last resort: it is said and stored
        problem = problem_of(error)
        advised = await asyncio.to_thread(_advised, problem, run)
        await _say_last(run, RunFailed(step=last_step(run), problem=advised))
    finally:
        run.close()


def _advised(problem: Problem, run: Run) -> Problem:
    """Add memory advice to a problem; unchanged if the model is no longer on this machine."""
    try:
        model = model_of(run.spec)
    except AtelierError:
        return problem
    return with_memory_advice(problem, run.config, model)


async def _train_with_restarts(run: Run, resources: RunResources) -> None:
    for attempt in range(MOST_RESTARTS + 1):
        try:
            if run.spec.kind == "evaluation":
                return await _evaluate(run, resources)
            _check_disk(run)
            if run.spec.kind == "outside":
                async with policy_of(run, resources) as (policy, chat):
                    session = resources.script_sessions[run.spec.id]
                    return await outside.train(run, policy, chat, session)
            if run.spec.kind == "sft":
                async with policy_of(run, resources, sampling=False) as (policy, chat):
                    return await fine_tune(run, policy, chat)
            async with workers(run, resources) as (policy, stage):
                stages = loop.train if run.spec.kind == "train" else loop.measure_baseline
                return await stages(run, policy, stage)
        except Exception as error:
            died = first_error(error)
            if not isinstance(died, ChildDied) or attempt == MOST_RESTARTS:
                raise
            worker = died.problem.code.partition(".")[0]
            await run.say(
                WorkerRestarted(worker=worker, attempt=attempt + 1, problem=died.problem)  # type: ignore[arg-type]
            )
            await asyncio.sleep(BACK_OFF_S[attempt])


async def _evaluate(run: Run, resources: RunResources) -> None:
    try:
        access = resources.credentials.access(run.spec)
        await evaluations.work(run, resources.gateway, resources.base_url, access)
    finally:
        await asyncio.to_thread(reap_orphans, resources.children.pids)


async def _say_last(run: Run, event: BaseEvent) -> None:
    """Store the last event of a run; on a full disk, in space reserved for it."""
    try:
        await run.say(event)
    except StoreError:
        run.free_ballast()
        await run.say(event)


def first_error(error: BaseException) -> BaseException:
    """First exception that is not a group, inside nested exception groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def problem_of(error: BaseException) -> Problem:
    """Problem that describes an exception; an AtelierError has its own."""
    error = first_error(error)
    if isinstance(error, AtelierError):
        return error.problem
    return Problem(
        code="engine.bug",
        message=f"Unexpected error: {type(error).__name__}: {error}",
        hint="Resume from the last checkpoint; please report this error with its details.",
        detail="".join(traceback.format_exception(error))[-8000:],
    )


def last_step(run: Run) -> int:
    return max(loop.finished_steps(run), default=0)


def _check_disk(run: Run) -> None:
    free, need = free_disk(run.folder), step_disk_need(run.config, model_of(run.spec))
    if free < need:
        raise Refused.of(
            "store.disk_full",
            f"Free disk: {free / 1e9:.1f} GB; the next checkpoints need {need / 1e9:.1f} GB.",
            "Free some space, then resume.",
            where=str(run.folder),
        )


def has_ended(run: Run) -> bool:
    """Whether the last event is stored: a stop may arrive while the workers are closing."""
    ends = [kind.model_fields["kind"].default for kind in FINAL]
    return isinstance(run.reader.events_of("run.started", *ends)[-1], FINAL)
