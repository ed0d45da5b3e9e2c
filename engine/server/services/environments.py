"""Jobs on environments: they continue after the window is closed and end with the engine."""

import asyncio
from collections.abc import Sized

from engine.environments.agent_packages import TITLE, packages_view
from engine.environments.catalogue import WORDS, environments
from engine.environments.engines import use_engine
from engine.environments.job import carry_out
from engine.hardware.doctor import card_lacks
from engine.hardware.gpus import read_gpus
from engine.protocol.problems import AtelierError, Problem, Refused
from engine.protocol.records.machine.environments import (
    EngineChoice,
    EnvironmentAction,
    EnvironmentList,
    EnvironmentTicked,
    EnvironmentView,
    UseEngine,
)


class EnvironmentService:
    """Installs, verifies, repairs and removes environments: one job per environment at a time."""

    def __init__(self, active: Sized) -> None:
        self.pids: set[int] = set()
        """PIDs of the job processes."""
        self._active = active
        self._jobs: dict[str, _Job] = {}
        self._closed = False

    @property
    def busy(self) -> bool:
        return any(job.busy for job in self._jobs.values())

    async def close(self) -> None:
        """Cancel all jobs and start no further ones; another engine can continue them."""
        self._closed = True
        for job in self._jobs.values():
            await job.cancel()

    async def view(self) -> EnvironmentList:
        """All environments, with the progress of their jobs."""
        found = await asyncio.to_thread(lambda: environments(card_lacks(read_gpus())))
        views = [
            one.model_copy(update=self._jobs[one.name].view()) if one.name in self._jobs else one
            for one in found.environments
        ]
        return found.model_copy(update={"environments": views})

    async def packages(self, name: str) -> EnvironmentView:
        """State of the environment `name` of an agent's packages, with the progress of its job."""
        found = await asyncio.to_thread(packages_view, name)
        job = self._jobs.get(name)
        return found.model_copy(update=job.view()) if job else found

    async def act_on_known(self, name: str, action: EnvironmentAction) -> None:
        """Start or cancel a job on environment `name` of the catalogue, like `act`. Raises Refused
        if the catalogue lacks it, or while a different job is active on it."""
        if name not in WORDS:
            raise Refused.of("environment.unknown", f"There is no environment {name}.")
        await self.act(name, action)

    async def act(self, name: str, action: EnvironmentAction) -> None:
        """Start a job such as an installation on environment `name`, or cancel it. Raises Refused
        while a different job is active on it."""
        job = self._jobs.get(name)
        if action == "cancel":
            if job:
                await job.cancel()
        elif job and job.busy:
            _refuse_other(name, job, action)
        elif not self._closed:
            self._jobs[name] = _Job(name, action, self.pids)

    async def use(self, request: UseEngine) -> EngineChoice:
        """Choose the engine that is started next time. Raises Refused while a run is active."""
        if self._active:
            raise Refused.of(
                "run.lives",
                "A run is active, and starting another engine would stop it.",
                "Wait for the run, or stop it first.",
            )
        return await asyncio.to_thread(use_engine, request)


def _refuse_other(name: str, job: "_Job", action: EnvironmentAction) -> None:
    """Raises Refused if the active job has another action; repeating its action is allowed."""
    if job.action != action:
        raise Refused.of(
            "environment.busy",
            f"{WORDS[name].title if name in WORDS else TITLE}: another job is running.",
            "Wait for that job, or cancel it.",
        )


class _Job:
    """Current or last job on one environment."""

    def __init__(self, name: str, action: EnvironmentAction, pids: set[int]) -> None:
        self.name, self.action, self._pids = name, action, pids
        self._tick: EnvironmentTicked | None = None
        self._problem: Problem | None = None
        self._task = asyncio.create_task(self._work(), name=f"{action} {name}")

    @property
    def busy(self) -> bool:
        return not self._task.done()

    def view(self) -> dict[str, object]:
        """Fields of an environment's view for this job: action and progress, or its problem."""
        if self.busy:
            return {"action": self.action, "tick": self._tick, "elsewhere": False}
        return {"problem": self._problem}

    async def cancel(self) -> None:
        """Cancel the job, and wait until it has ended."""
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _work(self) -> None:
        try:
            async for tick in carry_out(self.name, self.action, self._pids):
                self._tick = tick
        except AtelierError as error:
            self._problem = error.problem
