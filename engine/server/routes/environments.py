"""Routes of Python environments, and of the packages of a project's agent."""

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from engine.environments.agent_packages import packages_name
from engine.protocol.problems import Refused
from engine.protocol.records.environments import ActOnEnvironment, UseEngine
from engine.server.bodies import Routes, body_of, json_of, project_of
from engine.server.composition import Services
from engine.storage.project import load_config
from engine.trust.projects import require_trust

INSTALLING = ("install", "verify", "repair")
"""Actions that run code of packages."""


class EnvironmentRoutes:
    def __init__(self, services: Services) -> None:
        self._environments = services.environments

    def routes(self) -> Routes:
        return [
            ("GET", "/environments", self.view),
            ("POST", "/environments/{name}", self.act),
            ("POST", "/engine/use", self.use),
            ("GET", "/project/packages", self.packages),
            ("POST", "/project/packages", self.act_on_packages),
        ]

    async def view(self, request: Request) -> Response:
        return json_of(await self._environments.view())

    async def act(self, request: Request) -> Response:
        asked = await body_of(request, ActOnEnvironment)
        await self._environments.act_on_known(request.path_params["name"], asked.action)
        return json_of(await self._environments.view())

    async def use(self, request: Request) -> Response:
        return json_of(await self._environments.use(await body_of(request, UseEngine)))

    async def packages(self, request: Request) -> Response:
        """State of the packages of a project's agent; 204 where the agent needs none."""
        name = await asyncio.to_thread(_packages_of, request)
        if not name:
            return Response(status_code=204)
        return json_of(await self._environments.packages(name))

    async def act_on_packages(self, request: Request) -> Response:
        asked = await body_of(request, ActOnEnvironment)
        if not (name := await asyncio.to_thread(_packages_of, request)):
            raise Refused.of("agent.no_requirements", "The agent asks for no packages.")
        if asked.action in INSTALLING:  # building a package runs its code
            require_trust(project_of(request))
        await self._environments.act(name, asked.action)
        return json_of(await self._environments.packages(name))


def _packages_of(request: Request) -> str:
    project = project_of(request)
    return packages_name(project, load_config(project).agent)
