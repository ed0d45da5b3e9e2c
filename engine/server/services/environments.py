"""Jobs on environments and their routes: they go on when the window closes, and end with the
engine."""

import asyncio
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response

from engine.environments.agent_packages import TITLE, packages_name, packages_view
from engine.environments.catalogue import WORDS, environments
from engine.environments.engines import use_engine
from engine.environments.job import carry_out
from engine.hardware.gpu_doctor import card_lacks
from engine.hardware.gpus import look
from engine.protocol.problems import AtelierError, Problem, Refused
from engine.protocol.records.environments import (
    ActOnEnvironment,
    EnvironmentAction,
    EnvironmentList,
    EnvironmentTicked,
    EnvironmentView,
    UseEngine,
)
from engine.server.bodies import body_of, json_of, project_of
from engine.storage.project import load_config
from engine.trust.projects import require_trust

Handler = Callable[[Request], Awaitable[Response]]

INSTALLING = ("install", "verify", "repair")
"""Actions that run code of packages."""


class EnvironmentRoutes:
    """Routes of environments, one job per environment. `living` counts the runs of this engine,
    `pids` holds the job processes, which cleaning up after a run must spare."""

    def __init__(self, living: Callable[[], int], pids: set[int]) -> None:
        self._living, self._pids = living, pids
        self._jobs: dict[str, _Job] = {}
        self._leaving = False

    def routes(self) -> list[tuple[str, str, Handler]]:
        return [
            ("GET", "/environments", self.view),
            ("POST", "/environments/{name}", self.act),
            ("POST", "/engine/use", self.use),
            ("GET", "/project/packages", self.packages),
            ("POST", "/project/packages", self.act_on_packages),
        ]

    @property
    def busy(self) -> bool:
        return any(job.busy for job in self._jobs.values())

    async def close(self) -> None:
        """Cancel all jobs; another engine can continue them."""
        self._leaving = True
        for job in self._jobs.values():
            await job.cancel()

    async def view(self, request: Request) -> Response:
        return json_of(await self._now())

    async def act(self, request: Request) -> Response:
        name = request.path_params["name"]
        asked = await body_of(request, ActOnEnvironment)
        if name not in WORDS:
            raise Refused.of("environment.unknown", f"There is no environment {name}.")
        await self._do(name, asked.action)
        return json_of(await self._now())

    async def packages(self, request: Request) -> Response:
        """State of the packages of a project's agent; 204 where the agent needs none."""
        name = await asyncio.to_thread(_packages_of, request)
        return json_of(await self._packages_now(name)) if name else Response(status_code=204)

    async def act_on_packages(self, request: Request) -> Response:
        asked = await body_of(request, ActOnEnvironment)
        if not (name := await asyncio.to_thread(_packages_of, request)):
            raise Refused.of("agent.no_requirements", "The agent asks for no packages.")
        if asked.action in INSTALLING:  # building a package runs its code
            require_trust(project_of(request))
        await self._do(name, asked.action)
        return json_of(await self._packages_now(name))

    async def _do(self, name: str, action: EnvironmentAction) -> None:
        job = self._jobs.get(name)
        if action == "cancel":
            if job:
                await job.cancel()
        elif job and job.busy:
            _refuse_other(name, job, action)
        elif not self._leaving:
            self._jobs[name] = _Job(name, action, self._pids)

    async def _packages_now(self, name: str) -> EnvironmentView:
        found = await asyncio.to_thread(packages_view, name)
        job = self._jobs.get(name)
        return found.model_copy(update=job.view()) if job else found

    async def use(self, request: Request) -> Response:
        asked = await body_of(request, UseEngine)
        if self._living():
            raise Refused.of(
                "run.lives",
                "A run is going on, and another engine would begin with stopping it.",
                "Wait for it, or stop it first.",
            )
        return json_of(await asyncio.to_thread(use_engine, asked))

    async def _now(self) -> EnvironmentList:
        found = await asyncio.to_thread(lambda: environments(card_lacks(look())))
        views = [
            one.model_copy(update=self._jobs[one.name].view()) if one.name in self._jobs else one
            for one in found.environments
        ]
        return found.model_copy(update={"environments": views})


def _packages_of(request: Request) -> str:
    project = project_of(request)
    return packages_name(project, load_config(project).agent)


def _refuse_other(name: str, job: "_Job", action: EnvironmentAction) -> None:
    """Refuse another action while a job is under way; the same action is under way already."""
    if job.action != action:
        raise Refused.of(
            "environment.busy",
            f"{WORDS[name].title if name in WORDS else TITLE}: another job is under way.",
            "Wait for it, or cancel it.",
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
        """Fields of the view that come from the job, not from the disk."""
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
