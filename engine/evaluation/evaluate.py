"""Evaluation, top to bottom: rollouts of each contestant on the same scenarios, then the judge on
whole groups, then the results.

A group is a scenario with the rollouts of all contestants, so a judge compares them with each
other, in shuffled order and without names. Each trajectory is stored when it ends, and stored ones
are not repeated: an interrupted evaluation resumes.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path

from engine.evaluation.contestants import check_adapter
from engine.evaluation.provider_models import Providers
from engine.evaluation.stored import read_result, stored_scenarios
from engine.judge.panel import Panel
from engine.judge.providers.access import Access
from engine.policy.base import Policy
from engine.policy.start import loaded, policy_spec, start_policy
from engine.protocol.events.run import (
    EvaluationFinished,
    RunContinued,
    RunFinished,
    RunPaused,
    RunStopped,
)
from engine.protocol.records.runs import Scenario
from engine.protocol.requests.evaluation import Contestant, EvaluationPlan
from engine.rollout.agents.processes import AgentPool
from engine.rollout.gateway.gateway import Gateway
from engine.rollout.groups import Progress, close_group
from engine.rollout.images import images_of_run
from engine.rollout.rendering.chat import open_chat
from engine.rollout.rollout import RemoteStage, RolloutPlace, Stage, roll_out
from engine.runtime.closing import closing
from engine.runtime.seeds import derive
from engine.storage.run_folder.run import Run


class PauseControl:
    """Check before each rollout for a requested pause or stop."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._one_waits = asyncio.Lock()

    @property
    def closed(self) -> bool:
        """Whether a stop was requested."""
        return self._run.orders.stop_after_step

    async def passes(self) -> bool:
        """Wait while the run is paused. Returns False if the evaluation should stop."""
        if self._run.orders.paused and not self.closed:
            async with self._one_waits:
                await self._wait()
        return not self.closed

    async def _wait(self) -> None:
        orders = self._run.orders
        if not orders.paused or self.closed:
            return
        await self._run.say(RunPaused(step=0))
        await orders.until(lambda: self.closed or not orders.paused)
        if not self.closed:
            await self._run.say(RunContinued(step=0))


STEP = 0
"""Step of all rollouts: nothing is trained."""


@dataclass(frozen=True)
class EvaluationResources:
    """Components of the engine that all contestants share."""

    gateway: Gateway
    base_url: str
    pool: AgentPool
    access: Access
    """Access to providers."""
    judging: Callable[[], AbstractAsyncContextManager[Panel | None]]
    """Context manager that starts the judges and their process; yields None without a judge."""


async def evaluate(
    run: Run, resources: EvaluationResources, closing: Callable[[Run], Awaitable[None]]
) -> None:
    """Make all rollouts and judgements that the evaluation `run` lacks, until it is finished or a
    stop is requested. Rollouts share `resources`; `closing` is called when all trajectories are
    scored. Raises errors of the workers and of the store."""
    start_s = time.monotonic()
    plan = run.spec.evaluation
    assert plan is not None
    scenarios = stored_scenarios(run.folder)
    pause = PauseControl(run)
    async with providers_of(run, plan, resources) as providers:
        for place, contestant in enumerate(plan.contestants):
            missing = missing_rollouts(run, plan, place, scenarios)
            if missing and not pause.closed:
                async with stages_of(run, resources, plan, contestant, providers) as stages:
                    await run_contestant(run, plan, contestant, stages, missing, pause)
    if pause.closed:
        await run.say(RunStopped(step=STEP, reason="You stopped the evaluation."))
        return
    await close_groups(run, resources, plan)
    await closing(run)
    result = await asyncio.to_thread(read_result, run.reader, run.spec, run.folder)
    await run.say(EvaluationFinished(result=result))
    await run.say(RunFinished(step=STEP, seconds=time.monotonic() - start_s))


@dataclass(frozen=True)
class Task:
    """A rollout that is missing."""

    place: RolloutPlace
    scenario: Scenario
    entry: int
    """Index in `plan.entries`, which are pairs of contestant and system prompt."""
    seed: int
    """Seed, derived from scenario and repetition: the same for every contestant."""


def missing_rollouts(
    run: Run, plan: EvaluationPlan, contestant: int, scenarios: list[Scenario]
) -> list[Task]:
    """Rollouts of the model with index `contestant` in the plan that are not stored yet, in order
    of `scenarios`."""
    stored = {(row.group, row.index) for row in run.reader.summaries_of("validation", STEP)}
    entries = [
        number
        for number, entry in enumerate(plan.entries)
        if entry.contestant == plan.contestants[contestant]
    ]
    return [
        Task(
            RolloutPlace("validation", STEP, group, entry * plan.attempts + repeat),
            scenario,
            entry,
            derive(plan.seed, "evaluation", scenario.id, repeat),
        )
        for group, scenario in enumerate(scenarios)
        for entry in entries
        for repeat in range(plan.attempts)
        if (group, entry * plan.attempts + repeat) not in stored
    ]


async def run_contestant(
    run: Run,
    plan: EvaluationPlan,
    contestant: Contestant,
    stages: dict[int, Stage | RemoteStage],
    tasks: list[Task],
    pause: PauseControl,
) -> None:
    """Make and store the rollouts in `tasks` of one model (contestant); `pause` is checked before
    each. `stages` has what rollouts share, by index of the plan entry (model and system prompt)."""
    await run.enter(STEP, "validating")
    done = run.reader.counts()[0]
    progress = Progress(run, "validation", STEP, range(plan.scenarios), plan.size, done)
    progress.words = contestant.name
    room = asyncio.Semaphore(run.config.agent.concurrency)

    async def one(task: Task) -> None:
        async with room:
            if not await pause.passes():
                return
            stage = stages[task.entry]
            trajectory = await roll_out(stage, task.place, task.scenario, task.seed)
            await run.writer.add_trajectory(trajectory)
            progress.add(trajectory)

    async with asyncio.TaskGroup() as group:
        for task in tasks:
            group.create_task(one(task))


@contextlib.asynccontextmanager
async def providers_of(
    run: Run, plan: EvaluationPlan, resources: EvaluationResources
) -> AsyncIterator[Providers | None]:
    """Context manager of the process for provider models; None if no contestant needs it. Started
    first, so that missing prices are reported before any rollout. Raises ConfigError."""
    models = [one.model for one in plan.contestants if one.kind == "provider"]
    if not models:
        yield None
        return
    async with closing(await Providers.start(run, models, resources.access)) as providers:
        yield providers


@contextlib.asynccontextmanager
async def stages_of(
    run: Run,
    resources: EvaluationResources,
    plan: EvaluationPlan,
    contestant: Contestant,
    providers: Providers | None,
) -> AsyncIterator[dict[int, Stage | RemoteStage]]:
    """Yield, by index of the plan entry (model and system prompt), what rollouts of one model
    (contestant) share; its policy is closed when the block ends. `providers` is needed for a
    provider model only."""
    entries = {n: e for n, e in enumerate(plan.entries) if e.contestant == contestant}
    systems = {n: e.variant.text if e.variant else None for n, e in entries.items()}
    shared = (resources.gateway, resources.base_url, resources.pool)
    if contestant.kind == "provider":
        assert providers is not None
        model = providers.model(contestant.model)
        yield {
            n: RemoteStage(run.config, model, *shared, entry.label, systems[n])
            for n, entry in entries.items()
        }
        return
    folder = Path(contestant.model_path)
    async with (
        open_chat(folder, run.config.model) as chat,
        images_of_run(run, chat) as images,
        policy_of(run, contestant) as policy,
    ):
        yield {
            n: Stage(run.config, chat, policy, *shared, None, entry.label, systems[n], images)
            for n, entry in entries.items()
        }


@contextlib.asynccontextmanager
async def policy_of(run: Run, contestant: Contestant) -> AsyncIterator[Policy]:
    """Start a policy with the weights of a contestant for the block. Raises ConfigError if the
    weights have changed since the evaluation began."""
    assert contestant.shape is not None
    await run.enter(STEP, "loading")
    model = Path(contestant.model_path)
    policy = await start_policy(run.config, model, run.log_file, contestant.model)
    policy.on_restart = run.sampler_restarted
    try:
        # the seed is of an adapter that changes nothing until another takes its place
        info = await policy.load(policy_spec(run.config, model, contestant.shape, seed=0))
        if contestant.adapter:
            folder = await asyncio.to_thread(check_adapter, run.project, contestant)
            await policy.load_adapter(folder)
        await policy.publish(contestant.step)
        await run.say(loaded(info))
        yield policy
    finally:
        await asyncio.shield(policy.close())


async def close_groups(run: Run, resources: EvaluationResources, plan: EvaluationPlan) -> None:
    """Judge the groups (one per scenario) that have no stored summary yet, and store rewards,
    summary and advantages of each."""
    open_groups = [
        number
        for number in range(plan.scenarios)
        if run.reader.group("validation", STEP, number) is None
    ]
    if not open_groups:
        return
    done = plan.scenarios - len(open_groups)
    async with resources.judging() as judge, asyncio.TaskGroup() as tasks:

        async def close(number: int) -> None:
            nonlocal done
            siblings = await asyncio.to_thread(run.reader.stored, "validation", STEP, number)
            await close_group(run, judge, siblings)
            done += 1
            run.tick(STEP, "validating", done, plan.scenarios, "groups")

        for number in open_groups:
            tasks.create_task(close(number))
