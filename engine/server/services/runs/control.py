"""Control of runs: start, evaluate, resume, extend and every other command of a person."""

import asyncio
import contextlib
from collections.abc import Sequence
from pathlib import Path

from engine.environments.agent_packages import packages_python
from engine.judge.prompting.rubric import parse_rubric
from engine.judge.ruler import check_fit
from engine.protocol.events.checkpoints import CheckpointBranched
from engine.protocol.events.run import PauseRequested, RubricChanged, RunContinued, RunExtended
from engine.protocol.problems import Refused, StoreError
from engine.protocol.records.runs import ACTIVE_STATES, RunSpec, RunSummary
from engine.protocol.requests.runs import Command, StartEvaluation, StartRun
from engine.rollout.sandbox.machine import require_sandbox
from engine.server.bodies import path_of
from engine.server.services.credentials import Credentials
from engine.server.services.library import Library
from engine.server.services.runs import evaluations
from engine.server.services.runs.lifecycle import RunLifecycle
from engine.server.services.runs.queue import RunQueue
from engine.server.services.runs.start import make_folder, make_run
from engine.server.services.runs.work import ActiveRun, last_step
from engine.storage.run_folder.run import Run, read_spec
from engine.trust.projects import require_trust


class RunControl:
    """Executes requests about runs; a start request repeated with the same key has no effect."""

    def __init__(
        self, library: Library, lifecycle: RunLifecycle, queue: RunQueue, credentials: Credentials
    ) -> None:
        self._library, self._lifecycle, self._queue = library, lifecycle, queue
        self._credentials = credentials
        self._run_by_key: dict[str, str] = {}

    async def start(self, request: StartRun) -> RunSummary:
        """Start a run, or queue it if requested; a repeated `request.key` returns the run that it
        started. Raises ConfigError, ModelError, and Refused if another run is active and the
        request does not ask for the queue."""
        async with self._lifecycle.starting:
            if known := await self._admit(request.key, request.queue):
                return known
            project = path_of(request.project)
            require_trust(project)
            folder, spec = await make_run(project, request)
            await self._record_branch(spec)
            self._credentials.lend_to_run(spec.id, request)
            return await self._launch(folder, spec, request.key)

    async def start_evaluation(self, request: StartEvaluation) -> RunSummary:
        """Start an evaluation, or queue it if requested. An interrupted equal evaluation is resumed
        instead, and a finished one for demonstrations is returned. Raises ConfigError, ModelError,
        Refused."""
        async with self._lifecycle.starting:
            if known := await self._admit(request.key, request.queue):
                return known
            project = path_of(request.project)
            require_trust(project)
            planned = await asyncio.to_thread(evaluations.plan, project, request)
            spec, scenarios = planned.spec, planned.scenarios
            if interrupted := self._first_interrupted(planned.same):
                folder, spec = interrupted, read_spec(interrupted)
            elif planned.earlier and not scenarios:
                return self._library.summary(planned.earlier[0])
            else:
                await asyncio.to_thread(require_sandbox, spec.config.agent)
                await packages_python(project, spec.config.agent)
                folder = make_folder(project, spec, scenarios)
            self._credentials.lend_to_run(spec.id, request)
            return await self._launch(folder, spec, request.key)

    async def command(self, run_id: str, command: Command) -> RunSummary:
        """Execute a command such as pause, stop or resume. Raises Refused if the run's state does
        not allow it."""
        await self._lifecycle.settle()
        active = self._lifecycle.active.get(run_id)
        if active is None and self._lifecycle.summary(run_id).state in ACTIVE_STATES:
            async with self._lifecycle.starting:  # it is about to begin, or was interrupted
                active = self._lifecycle.active.get(run_id)
        if command.action in ("resume", "extend"):
            return await self._resume(run_id, command, active)
        if active and command.action == "continue":
            await self._go_on(run_id, active)
        elif active:
            await _order(active, command)
        elif command.action in ("stop_now", "stop_after_step"):
            await self._queue.cancel(run_id)
        else:
            raise Refused.of(
                "run.not_living", "This run is not active.", "Resume the run, or start another."
            )
        return self._lifecycle.summary(run_id)

    async def _resume(self, run_id: str, command: Command, active: ActiveRun | None) -> RunSummary:
        if command.action == "extend":
            refuse_extension(self._lifecycle.summary(run_id))
        if active and command.action == "extend" and command.steps:
            active.run.orders.steps = max(command.steps, self._lifecycle.summary(run_id).step)
            await active.run.say(RunExtended(steps=active.run.orders.steps))
            return self._lifecycle.summary(run_id)
        if active:
            await self._go_on(run_id, active)
            return self._lifecycle.summary(run_id)
        folder = self._library.folder(run_id)
        summary = self._library.summary(folder)
        refuse_resumption(summary, command.steps)
        async with self._lifecycle.starting:
            await self._lifecycle.require_free()
            self._queue.discard(folder)
            return await self._lifecycle.begin(folder, steps=command.steps or summary.steps)

    async def _go_on(self, run_id: str, active: ActiveRun) -> None:
        """Let an active run continue; record that a pause which has not begun is withdrawn."""
        withdrawn = self._lifecycle.summary(run_id).state == "pausing"
        active.run.orders.give(paused=False, stop=False)
        if withdrawn:
            await active.run.say(RunContinued(step=last_step(active.run)))

    async def _admit(self, key: str, queue: bool) -> RunSummary | None:
        """Run that was started with this key, if any. Raises Refused if the device is busy and the
        request does not ask for the queue."""
        if key and (known := self._run_by_key.get(key)):
            return self._lifecycle.summary(known)
        await self._lifecycle.settle()
        if not (queue and self._lifecycle.active):
            await self._lifecycle.require_free()
        return None

    async def _launch(self, folder: Path, spec: RunSpec, key: str) -> RunSummary:
        """Begin a run, or queue it behind the active one."""
        self._library.remember(spec.id, folder)
        self._run_by_key[key or spec.id] = spec.id
        if not self._lifecycle.active:
            return await self._lifecycle.begin(folder)
        await self._queue.add(folder, spec)
        return self._lifecycle.summary(spec.id)

    def _first_interrupted(self, folders: Sequence[Path]) -> Path | None:
        """First of the run folders whose run was stopped or failed; None if there is none."""
        ended = ("stopped", "failed")
        return next((one for one in folders if self._library.summary(one).state in ended), None)

    async def _record_branch(self, spec: RunSpec) -> None:
        """Record the branch in the parent run, so that it keeps the checkpoint."""
        if spec.parent is None or not spec.parent.run_id:
            return
        with contextlib.suppress(Refused):  # another engine works on it: the branch has its copy
            async with self._lifecycle.opened(spec.parent.run_id) as opened:
                branched = CheckpointBranched(step=spec.parent.step, child=spec.id, name=spec.name)
                await opened.run.say(branched)


async def _order(active: ActiveRun, command: Command) -> None:
    """Send a command to an active run; an immediate stop is awaited."""
    orders = active.run.orders
    match command.action:
        case "pause":
            if not orders.paused:  # stored first: the loop may pause at once
                await active.run.say(PauseRequested(step=last_step(active.run)))
            orders.give(paused=True)
        case "reviewed":
            orders.give(reviewed=True)
        case "use_rubric":
            await _change_rubric(active.run, command.rubric)
        case "stop_after_step":
            orders.give(stop=True)
        case "keep":
            orders.keep = True
        case "stop_now":
            await active.stop("You stopped the run.")


async def _change_rubric(run: Run, source: str) -> None:
    """Change a run's rubric. Raises Refused without a judge model, ConfigError if it is invalid."""
    judge = run.config.judge
    if not (judge.enabled and judge.models):
        raise Refused.of("run.no_judge", "This run has no judge that uses a rubric.")
    check_fit(judge, parse_rubric(source))
    await run.say(RubricChanged(step=last_step(run) + 1, source=source))
    run.orders.rubric = source


WEIGHTLESS = ("imported", "arena", "writing")


def refuse_extension(run: RunSummary) -> None:
    """Raise Refused if no steps can be added to a run of this kind."""
    match run.kind:
        case "evaluation":
            raise Refused.of("run.no_steps", "Steps cannot be added to an evaluation.")
        case "outside":
            raise Refused.of(
                "run.no_steps",
                "The number of steps of this run is set by its script.",
                "Edit the script.",
            )
        case "sft":
            raise Refused.of(
                "run.no_steps",
                "The number of updates of an SFT run is set by its epochs.",
                "Start a new SFT run from this run's checkpoint, with a different sft.epochs.",
            )


def refuse_resumption(run: RunSummary, steps: int | None) -> None:
    """Raise Refused if a run cannot resume up to `steps` steps in total (None: as many as planned),
    StoreError if it is damaged."""
    if run.state == "damaged" and run.problem:
        raise StoreError(run.problem)
    if run.kind == "outside":
        raise Refused.of(
            "run.outside",
            f"{run.name} is trained by a script, and only the script can make rollouts.",
            f"Start the script again: the run resumes after step {run.step}.",
        )
    if run.kind in WEIGHTLESS:
        raise Refused.of(
            "run.imported",
            "This run only stores trajectories and has no weights to train further.",
            "Start a new training run of the project instead.",
        )
    if run.state != "finished":
        return
    if run.kind in ("evaluation", "sft"):
        what = "evaluation" if run.kind == "evaluation" else "SFT run"
        raise Refused.of("run.finished", f"This {what} has finished.", f"Start another {what}.")
    if not (steps and steps > run.step):
        raise Refused.of(
            "run.finished",
            f"This run has finished its {run.steps} steps.",
            "Raise the number of steps to train more.",
        )
