"""HTTP application of the engine: all routes, their limits and the handling of errors."""

from collections.abc import Callable

import apsw
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Scope

from engine.protocol.problems import AtelierError, ConfigError, Problem, Refused
from engine.server.auth import Guard
from engine.server.bodies import Handler, check_numbers
from engine.server.composition import Services
from engine.server.limits import HANDLERS, limited
from engine.server.routes.arena import ArenaRoutes
from engine.server.routes.checkpoints import CheckpointRoutes, TrackingRoutes
from engine.server.routes.engine import EngineRoutes
from engine.server.routes.environments import EnvironmentRoutes
from engine.server.routes.home import HomeRoutes
from engine.server.routes.mirrors import MirrorRoutes
from engine.server.routes.projects import DraftRoutes, ProjectRoutes
from engine.server.routes.relay import Relay
from engine.server.routes.remote import HostRoutes
from engine.server.routes.runs import RunRoutes
from engine.server.routes.scripts import ScriptRoutes
from engine.server.routes.setup import SetupRoutes
from engine.server.routes.transfers import TransferRoutes
from engine.server.unwritable import answer_unwritable

STATUS = {ConfigError: 422, Refused: 409}
ROUTES = (
    EngineRoutes,
    ProjectRoutes,
    SetupRoutes,
    RunRoutes,
    MirrorRoutes,
    TrackingRoutes,
    CheckpointRoutes,
    ArenaRoutes,
    DraftRoutes,
    EnvironmentRoutes,
    ScriptRoutes,
    HomeRoutes,
    HostRoutes,
    TransferRoutes,
)


def make_app(
    services: Services, port: int, on_authenticated: Callable[[Scope], None] = lambda scope: None
) -> Guard:
    """The routes of an engine behind its guard. `on_authenticated` is called with each request that
    has shown a key."""
    relay = Relay(services)

    def counted(handler: Handler) -> Handler:
        async def handle(request: Request) -> Response:
            services.touch()
            check_numbers(request)
            return await handler(request)

        return handle

    routes = [
        Route(path, counted(relay.relayed(method, path, handler)), methods=[method])
        for kind in ROUTES
        for method, path, handler in kind(services).routes()
    ]
    app = Starlette(
        routes=[*routes, *services.gateway.routes()],
        exception_handlers={
            **HANDLERS,
            AtelierError: _refuse,  # type: ignore[dict-item]
            ValidationError: _refuse_body,  # type: ignore[dict-item]
            HTTPException: _refuse_path,  # type: ignore[dict-item]
            OSError: answer_unwritable,  # type: ignore[dict-item]
            apsw.Error: answer_unwritable,  # type: ignore[dict-item]
        },
    )
    inner = limited(app, services.gateway)
    return Guard(inner, port, services.token, services.gateway.knows, on_authenticated)


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
