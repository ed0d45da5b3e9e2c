"""HTTP application of the engine: all routes, their limits and the handling of errors."""

import errno
from collections.abc import Callable

import apsw
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Scope

from engine.protocol.problems import AtelierError, ConfigError, Problem, Refused, first_invalid
from engine.server.auth import Guard
from engine.server.bodies import Handler, check_numbers
from engine.server.composition import Services
from engine.server.limits import HANDLERS, limited
from engine.server.routes.arena import ArenaRoutes
from engine.server.routes.checkpoints import CheckpointRoutes, TrackingRoutes
from engine.server.routes.clusters import ClusterRoutes
from engine.server.routes.engine import EngineRoutes, EnvironmentRoutes
from engine.server.routes.home import HomeRoutes
from engine.server.routes.images import ImageRoutes
from engine.server.routes.mirrors import MirrorRoutes
from engine.server.routes.models import ModelRoutes
from engine.server.routes.projects import DraftRoutes, ProjectRoutes
from engine.server.routes.relay import Relay
from engine.server.routes.run_table import RunTableRoutes
from engine.server.routes.runs import RunRoutes
from engine.server.routes.scripts import ScriptRoutes
from engine.server.routes.setup import SetupRoutes
from engine.server.routes.sweeps import SweepRoutes
from engine.server.routes.transfers import HostRoutes, TransferRoutes

REASONS = {
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "you have no write permission there",
    errno.EPERM: "you have no write permission there",
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "your disk quota is used up",
}
NO_PLACE = (
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.ENAMETOOLONG,
    errno.ELOOP,
    errno.EINVAL,
    errno.ENODEV,
    errno.ENXIO,
)
"""Error numbers of a path that is missing or of a type that cannot be read or written."""
DATABASE = {
    apsw.ReadOnlyError: REASONS[errno.EROFS],
    apsw.CantOpenError: REASONS[errno.EACCES],
    apsw.FullError: REASONS[errno.ENOSPC],
}
CODE = "store.unwritable"


def unwritable_problem(error: Exception) -> Problem | None:
    """Problem for an error that means that a path cannot be used, or that data cannot be written
    (full or read-only disk, missing permission); None for any other error."""
    if isinstance(error, OSError) and error.errno in NO_PLACE:
        return Problem(
            code="file.no_place",
            message=f"A file or folder cannot be used: {error.strerror}.",
            hint="Check that the path exists and is a regular file.",
            where=str(error.filename or "")[:400],
        )
    if isinstance(error, OSError):
        reason, where = REASONS.get(error.errno or 0), str(error.filename or "")
    else:
        known = (words for kind, words in DATABASE.items() if isinstance(error, kind))
        reason, where = next(known, None), ""
    if reason is None:
        return None
    return Problem(
        code=CODE,
        message=f"Nothing was changed: {reason}.",
        hint="To make changes, copy the project to a folder where you can write.",
        where=where,
        detail=f"{type(error).__name__}: {error}"[:500],
    )


async def answer_unwritable(request: Request, error: Exception) -> Response:
    """Exception handler: respond with 409 if `unwritable_problem` explains the error; raises any
    other error again."""
    if problem := unwritable_problem(error):
        return JSONResponse(problem.model_dump(), 409)
    raise error


STATUS = {ConfigError: 422, Refused: 409}
ROUTES = (
    EngineRoutes,
    ProjectRoutes,
    SetupRoutes,
    RunRoutes,
    RunTableRoutes,
    SweepRoutes,
    ImageRoutes,
    MirrorRoutes,
    TrackingRoutes,
    CheckpointRoutes,
    ArenaRoutes,
    DraftRoutes,
    EnvironmentRoutes,
    ModelRoutes,
    ScriptRoutes,
    HomeRoutes,
    HostRoutes,
    TransferRoutes,
    ClusterRoutes,
)


def make_app(
    services: Services, port: int, on_authenticated: Callable[[Scope], None] = lambda scope: None
) -> Guard:
    """ASGI application with all routes behind authentication. `port` is part of the Host headers
    that are accepted. `on_authenticated` is called with the scope of each authenticated request."""
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
    problem = Problem(code="request.bad", message=f"{first_invalid(error)}.")
    return JSONResponse(problem.model_dump(), 400)


async def _refuse_path(request: Request, error: HTTPException) -> Response:
    problem = Problem(
        code="request.no_route", message=f"There is no route {request.method} {request.url.path}."
    )
    return JSONResponse(problem.model_dump(), error.status_code)
