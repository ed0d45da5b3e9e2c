"""Routes of the engine itself: proof, facts, keys, doctor, samples, Python environments."""

import asyncio
import os
import platform
import shutil
import sys

import psutil
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from engine import __version__
from engine.environments.agent_packages import packages_name
from engine.hardware.doctor import examine
from engine.hardware.gpus import read_gpus
from engine.hardware.machine import device_words
from engine.launcher.local import PROOF_PATH, proof
from engine.launcher.source_files import build
from engine.protocol import API_VERSION
from engine.protocol.problems import Refused
from engine.protocol.records.machine.environments import ActOnEnvironment, UseEngine
from engine.protocol.requests.runs import Confirm, EngineInfo, LendKeys
from engine.server.bodies import Routes, body_of, json_list, json_of, project_of
from engine.server.composition import Services
from engine.server.services.backends import backend_facts
from engine.storage.project import load_config
from engine.storage.samples import samples
from engine.trust.confirmation import confirm
from engine.trust.projects import require_trust


class EngineRoutes:
    def __init__(self, services: Services) -> None:
        self._services = services

    def routes(self) -> Routes:
        return [
            ("GET", PROOF_PATH, self.prove),
            ("GET", "/engine", self.info),
            ("POST", "/engine/shutdown", self.shut_down),
            ("POST", "/keys", self.lend_keys),
            ("POST", "/confirmations", self.confirm),
            ("GET", "/doctor", self.doctor),
            ("GET", "/backends", self.backends),
            ("GET", "/samples", self.samples),
        ]

    async def prove(self, request: Request) -> Response:
        nonce = request.query_params.get("nonce", "")
        return PlainTextResponse(proof(self._services.token, nonce[:128]))

    async def info(self, request: Request) -> Response:
        process, memory = psutil.Process(), psutil.virtual_memory()
        return json_of(
            EngineInfo(
                version=__version__,
                api=API_VERSION,
                pid=os.getpid(),
                workspace=str(self._services.workspace),
                started_at=self._services.started_at,
                device=device_words(),
                python=sys.executable,
                memory_bytes=process.memory_info().rss,
                memory_total_bytes=memory.total,
                living_runs=len(self._services.lifecycle.active),
                build=await asyncio.to_thread(build),
                host=platform.node(),
                cards=(await asyncio.to_thread(read_gpus)).cards,
                free_bytes=shutil.disk_usage(self._services.workspace).free,
            )
        )

    async def shut_down(self, request: Request) -> Response:
        self._services.stop.set()
        return Response(status_code=202)

    async def lend_keys(self, request: Request) -> Response:
        body = await body_of(request, LendKeys)
        self._services.credentials.keys.update(body.keys)
        self._services.tracking.lend(body.trackers)
        return Response(status_code=204)

    async def confirm(self, request: Request) -> Response:
        """Record that the person trusts a project, address or file; queued runs of a trusted
        project may begin."""
        body = await body_of(request, Confirm)
        await asyncio.to_thread(confirm, body.confirmation)
        if body.confirmation.kind == "project":
            self._services.queue.advance()
        return Response(status_code=204)

    async def doctor(self, request: Request) -> Response:
        return json_list(await asyncio.to_thread(examine, self._services.workspace))

    async def backends(self, request: Request) -> Response:
        return json_of(await asyncio.to_thread(backend_facts))

    async def samples(self, request: Request) -> Response:
        return json_list(samples())


INSTALLING = ("install", "verify", "repair")
"""Actions on an environment that may run code of its packages."""


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
        body = await body_of(request, ActOnEnvironment)
        await self._environments.act_on_known(request.path_params["name"], body.action)
        return json_of(await self._environments.view())

    async def use(self, request: Request) -> Response:
        return json_of(await self._environments.use(await body_of(request, UseEngine)))

    async def packages(self, request: Request) -> Response:
        """Respond with the state of the agent packages of project `path`; 204 if it needs none."""
        name = await asyncio.to_thread(_packages_of, request)
        if not name:
            return Response(status_code=204)
        return json_of(await self._environments.packages(name))

    async def act_on_packages(self, request: Request) -> Response:
        body = await body_of(request, ActOnEnvironment)
        if not (name := await asyncio.to_thread(_packages_of, request)):
            raise Refused.of("agent.no_requirements", "The agent needs no packages.")
        if body.action in INSTALLING:  # building a package runs its code
            require_trust(project_of(request))
        await self._environments.act(name, body.action)
        return json_of(await self._environments.packages(name))


def _packages_of(request: Request) -> str:
    project = project_of(request)
    return packages_name(project, load_config(project).agent)
