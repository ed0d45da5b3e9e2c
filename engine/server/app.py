"""Routes of engine and projects; those of runs are beside. Translation, nothing else."""

import asyncio
import os
import platform
import shutil
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import apsw
import psutil
from pydantic import BaseModel, ValidationError
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Scope

from engine import __version__
from engine.hosts.desk import HostDesk
from engine.imports.store import import_run
from engine.launch.local import PROOF_PATH, proof
from engine.launch.source import build
from engine.machine.cards import look
from engine.machine.doctor import examine
from engine.machine.hardware import device_words
from engine.models import known_models
from engine.policy.fork_server import server_pids, warm_up
from engine.project import (
    FILE,
    edit_text,
    load_config,
    read_scenarios,
    read_toml,
    scenario_file,
    write_scenarios,
    write_toml,
)
from engine.protocol import API_VERSION
from engine.protocol.event import BaseEvent
from engine.protocol.problems import AtelierError, ConfigError, Problem, Refused
from engine.protocol.records import ProjectView
from engine.protocol.requests import (
    CreateProject,
    EditProject,
    EngineInfo,
    ImportRun,
    LendKeys,
    ProjectFiles,
    ScenarioPage,
    WriteScenarios,
)
from engine.rollout.gateway import Gateway
from engine.samples import create_project, samples
from engine.server.arena_routes import ArenaRoutes
from engine.server.authoring import AuthoringRoutes
from engine.server.backends import backend_facts
from engine.server.checkpoints import CheckpointRoutes
from engine.server.environments import EnvironmentRoutes
from engine.server.far import FarRoutes
from engine.server.fingerprints import check_unchanged, fingerprint
from engine.server.guard import Guard
from engine.server.hosts import HostRoutes
from engine.server.library import Library
from engine.server.limits import HANDLERS, limited
from engine.server.mcp import McpRoutes
from engine.server.outside import OutsideRoutes
from engine.server.replicas import ReplicaRoutes
from engine.server.runs import RunRoutes
from engine.server.setup_routes import SetupRoutes
from engine.server.stream import Broadcast
from engine.server.supervisor import Supervisor
from engine.server.tracking import TrackRoutes
from engine.server.trust import TrustRoutes
from engine.server.unwritable import answer_unwritable
from engine.server.wire import (
    body_of,
    check_numbers,
    json_list,
    json_of,
    number_of,
    path_of,
    project_of,
    text_of,
)

T = TypeVar("T", bound=BaseModel)
R = TypeVar("R")
Handler = Callable[[Request], Awaitable[Response]]

IDLE_EXIT_S = 600.0
STATUS = {ConfigError: 422, Refused: 409}
LOG_TAIL_BYTES = 200_000


class Application:
    """The engine's routes over one workspace."""

    def __init__(self, workspace: Path, token: str) -> None:
        self.workspace = workspace
        self.token = token
        self.started_at = time.time()
        self.touched = time.monotonic()
        self.library = Library(workspace)
        self.gateway = Gateway()
        self.broadcast = Broadcast(asyncio.get_running_loop())
        self.supervisor = Supervisor(self.library, self.broadcast, self.gateway)
        self.runs = RunRoutes(self.library, self.supervisor, self.broadcast, self.touch)
        self.replicas = ReplicaRoutes(self.library, self.broadcast, self.touch)
        self.arena = ArenaRoutes(self.library, self.supervisor, self.touch)
        self.tracks = TrackRoutes(self.supervisor.tracking, self.library)
        self.authoring = AuthoringRoutes(self.library, self.supervisor, self.touch)
        self.checkpoints = CheckpointRoutes(self.library, self.supervisor)
        self.outside = OutsideRoutes(workspace, self.library, self.supervisor)
        self.environments = EnvironmentRoutes(
            lambda: self.supervisor.living, self.supervisor.environment_pids
        )
        self.far = FarRoutes(workspace, self.library, self.supervisor, self.touch)
        self.hosts = HostDesk(
            workspace,
            self.library.projects,
            self.library.all_runs,
            self._mirrored,
            self.supervisor.judge_keys,
        )
        self.host_routes = HostRoutes(self.hosts, self.library, self.supervisor, self.touch)
        self.supervisor.others = lambda: [*self.hosts.pids, *server_pids()]
        self.supervisor.tracking.served = lambda: self.far.served
        self.stop = asyncio.Event()

    def asgi(self, port: int, on_known: Callable[[Scope], None] = lambda scope: None) -> Guard:
        """`on_known` hears of each request that has shown a key."""
        self.supervisor.house.base_url = f"http://127.0.0.1:{port}/v1"
        routes: list[tuple[str, str, Handler]] = [
            ("GET", PROOF_PATH, self.prove),
            ("GET", "/engine", self.info),
            ("POST", "/engine/shutdown", self.shut_down),
            ("POST", "/keys", self.lend_keys),
            *TrustRoutes(self.supervisor.take_up_queue).routes(),
            ("GET", "/doctor", self.doctor),
            ("GET", "/models", self.models),
            ("GET", "/backends", self.backends),
            ("GET", "/samples", self.samples),
            ("GET", "/projects", self.projects),
            ("POST", "/projects", self.create_project),
            ("GET", "/project", self.project),
            ("PUT", "/project", self.edit_project),
            ("GET", "/project/files", self.project_files),
            ("GET", "/scenarios", self.scenarios),
            ("PUT", "/scenarios", self.write_scenarios),
            ("POST", "/import", self.import_run),
            *SetupRoutes(self.library, self.supervisor).routes(),
            *self.runs.routes(),
            *self.replicas.routes(),
            *self.tracks.routes(),
            *self.checkpoints.routes(),
            *self.arena.routes(),
            *self.authoring.routes(),
            *McpRoutes().routes(),
            *self.environments.routes(),
            *self.outside.routes(),
            *self.far.routes(),
            *self.host_routes.routes(),
        ]
        starlette = Starlette(
            routes=[
                *(self._route(*route) for route in routes),
                *self.gateway.routes(),
            ],
            exception_handlers={
                **HANDLERS,
                AtelierError: _refuse,  # type: ignore[dict-item]
                ValidationError: _refuse_body,  # type: ignore[dict-item]
                HTTPException: _refuse_path,  # type: ignore[dict-item]
                OSError: answer_unwritable,  # type: ignore[dict-item]
                apsw.Error: answer_unwritable,  # type: ignore[dict-item]
            },
        )
        inner = limited(starlette, self.gateway)
        return Guard(inner, port, self.token, self.gateway.knows, on_known)

    # The engine

    async def prove(self, request: Request) -> Response:
        nonce = request.query_params.get("nonce", "")
        return PlainTextResponse(proof(self.token, nonce[:128]))

    async def info(self, request: Request) -> Response:
        process, memory = psutil.Process(), psutil.virtual_memory()
        return json_of(
            EngineInfo(
                version=__version__,
                api=API_VERSION,
                pid=os.getpid(),
                workspace=str(self.workspace),
                started_at=self.started_at,
                device=device_words(),
                python=sys.executable,
                memory_bytes=process.memory_info().rss,
                memory_total_bytes=memory.total,
                living_runs=self.supervisor.living,
                build=await asyncio.to_thread(build),
                host=platform.node(),
                cards=(await asyncio.to_thread(look)).cards,
                free_bytes=shutil.disk_usage(self.workspace).free,
            )
        )

    async def shut_down(self, request: Request) -> Response:
        self.stop.set()
        return Response(status_code=202)

    async def lend_keys(self, request: Request) -> Response:
        lent = await body_of(request, LendKeys)
        self.supervisor.judge_keys.update(lent.keys)
        self.supervisor.tracking.lend(lent.trackers)
        return Response(status_code=204)

    async def doctor(self, request: Request) -> Response:
        return json_list(await asyncio.to_thread(examine))

    async def models(self, request: Request) -> Response:
        return json_list(await asyncio.to_thread(known_models))

    async def backends(self, request: Request) -> Response:
        return json_of(await asyncio.to_thread(backend_facts))

    # Projects

    async def samples(self, request: Request) -> Response:
        return json_list(samples())

    async def projects(self, request: Request) -> Response:
        paths = await asyncio.to_thread(self.library.projects)
        views = await asyncio.gather(*(self._view(path, self.library.view) for path in paths))
        return json_list(views)

    async def create_project(self, request: Request) -> Response:
        asked = await body_of(request, CreateProject)
        folder = Path(asked.folder).expanduser()
        folder = folder if folder.is_absolute() else self.workspace / folder
        await asyncio.to_thread(create_project, folder, asked.sample)
        return json_of(await self._view(folder))

    async def project(self, request: Request) -> Response:
        answer = json_of(await self._view(project_of(request)))
        answer.background = BackgroundTask(warm_up)  # somebody may be about to train
        return answer

    async def edit_project(self, request: Request) -> Response:
        asked, path = await body_of(request, EditProject), project_of(request)
        await asyncio.to_thread(check_unchanged, path / FILE, asked.read)
        text = asked.toml if asked.toml is not None else read_toml(path)
        text = edit_text(text, asked.values or {})
        await asyncio.to_thread(write_toml, path, text)
        return json_of(await self._view(path))

    async def project_files(self, request: Request) -> Response:
        files = await asyncio.to_thread(self.library.files, project_of(request))
        return json_of(ProjectFiles(files=files))

    async def scenarios(self, request: Request) -> Response:
        path, split = project_of(request), text_of(request, "split")
        offset, limit = (
            int(number_of(request, name, otherwise))
            for name, otherwise in (("offset", 0), ("limit", 200))
        )
        file = scenario_file(path, load_config(path), split)  # type: ignore[arg-type]
        mark = await asyncio.to_thread(fingerprint, file) if file else ""
        found = (await asyncio.to_thread(read_scenarios, file))[0] if file else []
        items = found[offset : offset + limit]
        return json_of(ScenarioPage(total=len(found), items=items, fingerprint=mark))

    async def write_scenarios(self, request: Request) -> Response:
        asked, path = await body_of(request, WriteScenarios), project_of(request)
        file = scenario_file(path, load_config(path), text_of(request, "split"))  # type: ignore[arg-type]
        if file is None:
            raise ConfigError.of(
                "scenarios.no_file", "This split has no file.", "Set it under [scenarios]."
            )
        await asyncio.to_thread(check_unchanged, file, asked.read)
        await asyncio.to_thread(write_scenarios, file, asked.items)
        return json_of(await self._view(path))

    async def import_run(self, request: Request) -> Response:
        asked, path = await body_of(request, ImportRun), project_of(request)
        folder = await import_run(path, path_of(asked.source), asked.model)
        return json_of(await asyncio.to_thread(self.library.summary, folder))

    # What they share

    def touch(self) -> None:
        """Somebody is there."""
        self.touched = time.monotonic()

    def _mirrored(self, run_id: str, tick: BaseEvent | None) -> None:
        """Of a run on a server: something was stored here, or a tick came."""
        self.broadcast.announce(run_id, tick)
        if tick is None:
            self.supervisor.tracking.heard(run_id)

    def is_idle(self) -> bool:
        idle = time.monotonic() - self.touched > IDLE_EXIT_S
        supervisor = self.supervisor
        work = supervisor.living or supervisor.exports.busy or supervisor.tracking.busy
        busy = work or self.environments.busy or self.hosts.busy
        return idle and not busy and not self.broadcast.listeners

    def _route(self, method: str, path: str, handler: Handler) -> Route:
        asked = self.host_routes.relayed(method, path, handler)
        return Route(path, self._counted(asked), methods=[method])

    def _counted(self, handler: Handler) -> Handler:
        async def counted(request: Request) -> Response:
            self.touch()
            check_numbers(request)
            return await handler(request)

        return counted

    async def _view(
        self, path: Path, read: Callable[[Path], ProjectView] | None = None
    ) -> ProjectView:
        view = await asyncio.to_thread(read or self.library.open_project, path)
        return view.model_copy(
            update={"runs": [self.supervisor.summary(run.id) for run in view.runs]}
        )

    def _current(self, run_id: str):  # type: ignore[no-untyped-def]
        return self.supervisor.summary(run_id)


async def _refuse(request: Request, error: AtelierError) -> Response:
    status = next((s for kind, s in STATUS.items() if isinstance(error, kind)), 400)
    status = 404 if error.problem.code.endswith((".unknown", ".missing")) else status
    return JSONResponse(error.problem.model_dump(), status)


async def _refuse_body(request: Request, error: ValidationError) -> Response:
    first = error.errors()[0]
    place = ".".join(map(str, first["loc"]))
    problem = Problem(code="request.bad", message=f"{place}: {first['msg']}.")
    return JSONResponse(problem.model_dump(), 400)


async def _refuse_path(request: Request, error: HTTPException) -> Response:
    problem = Problem(
        code="request.no_route", message=f"There is no {request.method} {request.url.path}."
    )
    return JSONResponse(problem.model_dump(), error.status_code)
