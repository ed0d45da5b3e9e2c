"""Living runs: starts them, gives them their workers, restarts what died, ends them, says why."""

import asyncio
import contextlib
import platform
import sys
import time
import traceback
from collections.abc import AsyncIterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from engine import __version__, loop
from engine.child import ChildDied, reap_orphans
from engine.identity import run_name, ulid
from engine.judge.ledger import Ledger
from engine.judge.lessons import lessons_of
from engine.judge.local import LocalJudge
from engine.judge.panel import Panel
from engine.judge.provider import Provider
from engine.judge.rubric import load_rubric, parse_rubric
from engine.judge.ruler import Ruler, check_fit
from engine.labelling import Labeller
from engine.machine.hardware import device_words, free_disk, step_disk_need
from engine.models import find_model
from engine.policy.worker import TorchPolicy
from engine.project import load_config, load_scenarios
from engine.protocol.config import JudgeConfig
from engine.protocol.events import (
    FINAL,
    RubricChanged,
    RunExtended,
    RunFailed,
    RunStarted,
    RunStopped,
    WorkerRestarted,
)
from engine.protocol.problems import AtelierError, Problem, Refused
from engine.protocol.records import LIVING, RunSpec, RunSummary
from engine.protocol.requests import Command, StartRun
from engine.rollout.agents import AgentPool
from engine.rollout.attempt import Stage
from engine.rollout.chat import ChatFormat
from engine.rollout.gateway import Gateway
from engine.run import Run, read_spec, write_spec
from engine.server.exporting import ExportDesk
from engine.server.judging import JudgeDesk
from engine.server.library import Library
from engine.server.lock import device_lock
from engine.server.open_runs import Opened, OpenRuns
from engine.server.stream import Broadcast

MOST_RESTARTS = 3
BACK_OFF_S = (1.0, 5.0, 15.0)
VERSIONED = ("torch", "transformers", "peft", "tokenizers", "apsw")


class Living:
    """A run with a task behind it."""

    def __init__(self, run: Run, task: "asyncio.Task[None]") -> None:
        self.run = run
        self.labeller = Labeller(run)
        self.task = task
        self.stopping = False


class Supervisor:
    """One per engine. One run trains at a time on one device."""

    def __init__(self, library: Library, broadcast: Broadcast, gateway: Gateway) -> None:
        self._library = library
        self._broadcast = broadcast
        self._gateway = gateway
        self._living: dict[str, Living] = {}
        self._leaving = False
        self._keys: dict[str, str] = {}
        self.base_url = ""
        self.judge_keys: dict[str, str] = {}
        """API keys by provider, lent by studio or CLI for as long as this engine lives."""
        self.stop_reason = "The engine was stopped."
        self._open = OpenRuns(broadcast)
        self.desk = JudgeDesk(self.judge_keys)
        self.exports = ExportDesk(self.opened)

    @property
    def living(self) -> int:
        return len(self._living)

    async def start(self, request: StartRun) -> RunSummary:
        """Check what can be checked, then begin. Raises ConfigError, ModelError, Refused."""
        if request.key and (known := self._keys.get(request.key)):
            return self.summary(known)
        await self._settle()
        project = Path(request.project).expanduser().resolve()
        config = load_config(project, request.overrides)
        load_scenarios(project, config, "train")
        load_scenarios(project, config, "validation")
        model = find_model(config.model.name)
        rubric = (
            _rubric(project, config.judge) if config.judge.enabled and config.judge.models else ""
        )
        self._refuse_second()
        spec = RunSpec(
            id=ulid(),
            name=run_name(),
            kind=request.kind,
            project=config.name or project.name,
            started_at=time.time(),
            config=config,
            model_path=str(model),
            rubric=rubric,
            versions=_versions(),
        )
        folder = project / "runs" / spec.id
        folder.mkdir(parents=True)
        write_spec(folder, spec)
        self._library.remember(spec.id, folder)
        self._keys[request.key or spec.id] = spec.id
        return await self._begin(folder, resumed=False)

    async def command(self, run_id: str, command: Command) -> RunSummary:
        """Raises Refused where the run is not in a state for it."""
        await self._settle()
        if command.action in ("resume", "extend"):
            return await self._resume(run_id, command)
        living = self._living.get(run_id)
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
            case "stop_now":
                living.stopping = True
                living.task.cancel("You stopped it.")
                await asyncio.wait([living.task])
        return self.summary(run_id)

    def summary(self, run_id: str) -> RunSummary:
        summary = self._library.summary(self._library.folder(run_id))
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
        await self._settle()
        tasks = [living.task for living in self._living.values()]
        for task in tasks:
            task.cancel(self.stop_reason)
        if tasks:
            await asyncio.wait(tasks)
        await self.exports.close()
        await self.desk.close()
        await self._open.close()

    @contextlib.asynccontextmanager
    async def opened(self, run_id: str) -> AsyncIterator[Opened]:
        """A run for labels and trials, living or not. Raises Refused where another engine works
        on it."""
        await self._settle()
        if living := self._living.get(run_id):
            yield Opened(living.run, living.labeller)
            return
        async with self._open.use(run_id, self._library.folder(run_id)) as opened:
            yield opened

    async def _resume(self, run_id: str, command: Command) -> RunSummary:
        living = self._living.get(run_id)
        if living and command.action == "extend" and command.steps:
            living.run.orders.steps = max(command.steps, self.summary(run_id).step)
            await living.run.say(RunExtended(steps=living.run.orders.steps))
            return self.summary(run_id)
        if living:
            living.run.orders.give(paused=False, stop=False)
            return self.summary(run_id)
        folder = self._library.folder(run_id)
        summary = self._library.summary(folder)
        if summary.kind == "imported":
            raise Refused.of(
                "run.imported",
                "This run was imported: there are no weights here to train further.",
                "Start a run of the project instead.",
            )
        if summary.state == "finished" and not (command.steps and command.steps > summary.step):
            raise Refused.of(
                "run.finished",
                f"This run has finished its {summary.steps} steps.",
                "Train more by asking for more steps.",
            )
        self._refuse_second()
        return await self._begin(folder, resumed=True, steps=command.steps or summary.steps)

    async def _begin(self, folder: Path, resumed: bool, steps: int | None = None) -> RunSummary:
        spec = read_spec(folder)
        async with self._open.none_of(spec.id):
            run = Run(folder, spec, lambda tick: self._broadcast.announce(spec.id, tick))
        last = self._library.summary(folder).step if resumed else None
        run.orders.steps = steps or spec.config.train.steps
        run.orders.rubric = _last_rubric(run)
        await run.say(RunStarted(spec=spec, resumed_from=last, device=device_words()))
        if run.orders.steps != spec.config.train.steps:
            await run.say(RunExtended(steps=run.orders.steps))
        task = asyncio.create_task(self._work(run), name=f"run {spec.name}")
        self._living[spec.id] = Living(run, task)
        return self.summary(spec.id)

    async def _settle(self) -> None:
        """Wait for runs that have said their last word and are only closing their workers."""
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
                f"{living.run.spec.project} is training on this machine ({living.run.spec.name}).",
                "Wait for it, or stop it first.",
            )

    async def _work(self, run: Run) -> None:
        """One run from start to end; leaves its last event behind whatever happens."""
        try:
            with device_lock():
                ticking = asyncio.create_task(run.keep_ticking())
                try:
                    await self._train_with_restarts(run)
                finally:
                    ticking.cancel()
        except asyncio.CancelledError as cancelled:
            reason = str(cancelled.args[0]) if cancelled.args else self.stop_reason
            if not _has_ended(run):
                await run.say(RunStopped(step=_last_step(run), reason=reason))
        except Exception as error:  # noqa: BLE001 - the last resort: it is said and stored
            problem = problem_of(error)
            await run.say(RunFailed(step=_last_step(run), problem=problem))
        finally:
            run.close()
            del self._living[run.spec.id]
            self._broadcast.announce(run.spec.id, None)

    async def _train_with_restarts(self, run: Run) -> None:
        for attempt in range(MOST_RESTARTS + 1):
            try:
                _check_disk(run)
                async with self._workers(run) as (policy, stage):
                    work = loop.train if run.spec.kind == "train" else loop.measure_baseline
                    await work(run, policy, stage)
                return
            except Exception as error:
                died = first_error(error)
                if not isinstance(died, ChildDied) or attempt == MOST_RESTARTS:
                    raise
                worker = died.problem.code.partition(".")[0]
                await run.say(
                    WorkerRestarted(worker=worker, attempt=attempt + 1, problem=died.problem)  # type: ignore[arg-type]
                )
                await asyncio.sleep(BACK_OFF_S[attempt])

    @contextlib.asynccontextmanager
    async def _workers(self, run: Run) -> AsyncIterator[tuple[TorchPolicy, Stage]]:
        """Policy and agent processes of one run; gone when the block ends."""
        chat = await asyncio.to_thread(ChatFormat, Path(run.spec.model_path))
        pool = AgentPool(run.project, run.config.agent, run.log_file)
        policy = await TorchPolicy.start(run.log_file, run.config.model.name)
        try:
            await pool.start()
            base_url = self.base_url
            async with self._judging(run, policy) as judge:
                yield policy, Stage(run.config, chat, policy, self._gateway, base_url, pool, judge)
        finally:
            await asyncio.shield(asyncio.gather(pool.close(), policy.close()))
            # One run at a time: whatever child is left now was orphaned by a worker that died.
            spared = [*self.desk.pids, *self.exports.pids]
            await asyncio.to_thread(reap_orphans, spared)

    @contextlib.asynccontextmanager
    async def _judging(self, run: Run, policy: TorchPolicy) -> AsyncIterator[Panel | None]:
        """The judges of one run, if it has any; their process is gone when the block ends."""
        judge = run.config.judge
        if not judge.enabled:
            yield None
            return
        local = LocalJudge(policy) if judge.local else None
        if not judge.models:
            yield Panel(run, None, local)
            return
        words = (
            f"Starting the judge ({', '.join(judge.models)}); its environment is installed once."
        )
        await run.log("info", "judge", words)
        provider = await Provider.start(judge, self.judge_keys, run.log_file)
        try:
            ledger = Ledger(run, provider, judge)
            rubric, seed = parse_rubric(run.spec.rubric), run.config.train.seed
            ruler = Ruler(
                judge, rubric, ledger, seed, lambda: lessons_of(run), lambda: run.orders.rubric
            )
            yield Panel(run, ruler, local)
        finally:
            await asyncio.shield(provider.close())


def first_error(error: BaseException) -> BaseException:
    """The first real cause inside groups of errors."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def problem_of(error: BaseException) -> Problem:
    """What is said about an error; one that is ours already says it itself."""
    error = first_error(error)
    if isinstance(error, AtelierError):
        return error.problem
    return Problem(
        code="engine.bug",
        message=f"Something that should not happen did: {type(error).__name__}: {error}",
        hint="Resume from the last checkpoint; please report it with the details.",
        detail="".join(traceback.format_exception(error))[-8000:],
    )


async def _change_rubric(run: Run, source: str) -> None:
    """Raises Refused without a judge that reads one, ConfigError where it cannot be used."""
    judge = run.config.judge
    if not (judge.enabled and judge.models):
        raise Refused.of("run.no_judge", "This run has no judge that goes by a rubric.")
    check_fit(judge, parse_rubric(source))
    await run.say(RubricChanged(step=_last_step(run) + 1, source=source))
    run.orders.rubric = source


def _last_rubric(run: Run) -> str:
    events = run.reader.events_of("rubric.changed")
    return events[-1].source if events and isinstance(events[-1], RubricChanged) else ""


def _rubric(project: Path, judge: JudgeConfig) -> str:
    """As it is now; the run keeps it. Raises ConfigError where it cannot be used."""
    rubric = load_rubric(project / judge.rubric)
    check_fit(judge, rubric)
    return rubric.source


def _check_disk(run: Run) -> None:
    free, need = free_disk(run.folder), step_disk_need(run.config, Path(run.spec.model_path))
    if free < need:
        raise Refused.of(
            "store.disk_full",
            f"There are {free / 1e9:.1f} GB free; the next checkpoints need {need / 1e9:.1f} GB.",
            "Free some space, then resume.",
            where=str(run.folder),
        )


def _has_ended(run: Run) -> bool:
    """Whether the last word is said already: a stop may come while the workers are closing."""
    ends = [kind.model_fields["kind"].default for kind in FINAL]
    return isinstance(run.reader.events_of("run.started", *ends)[-1], FINAL)


def _last_step(run: Run) -> int:
    return max(loop.finished_steps(run), default=0)


def _versions() -> dict[str, str]:
    found = {"atelier": __version__, "python": platform.python_version(), "system": sys.platform}
    for name in VERSIONED:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found
