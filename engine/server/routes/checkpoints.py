"""Routes of what a run has kept."""

import asyncio
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response

from engine.protocol.records.runs import KeptCheckpoint
from engine.protocol.requests.runs import PinCheckpoint
from engine.remote.mirror.record import read_record
from engine.server.bodies import body_of, json_list
from engine.server.services.library import Library
from engine.server.services.supervisor import Supervisor
from engine.storage.checkpoints import retention
from engine.storage.run_db.reader import RunReader
from engine.storage.run_folder.run import DATABASE, read_spec

Handler = Callable[[Request], Awaitable[Response]]


class CheckpointRoutes:
    """What is kept and why, and what a person wants of it."""

    def __init__(self, library: Library, supervisor: Supervisor) -> None:
        self.library = library
        self.supervisor = supervisor

    def routes(self) -> list[tuple[str, str, Handler]]:
        return [
            ("GET", "/runs/{run}/checkpoints", self.checkpoints),
            ("POST", "/runs/{run}/checkpoints/{step:int}/pin", self.pin),
            ("DELETE", "/runs/{run}/checkpoints/{step:int}", self.delete),
        ]

    async def checkpoints(self, request: Request) -> Response:
        return json_list(await asyncio.to_thread(self._view, request.path_params["run"]))

    async def pin(self, request: Request) -> Response:
        asked, run_id = await body_of(request, PinCheckpoint), request.path_params["run"]
        async with self.supervisor.opened(run_id) as opened:
            await retention.pin(opened.run, request.path_params["step"], asked)
        return await self.checkpoints(request)

    async def delete(self, request: Request) -> Response:
        async with self.supervisor.opened(request.path_params["run"]) as opened:
            await retention.delete(opened.run, request.path_params["step"])
        return await self.checkpoints(request)

    def _view(self, run_id: str) -> list[KeptCheckpoint]:
        folder = self.library.folder(run_id)
        reader = RunReader(folder / DATABASE)
        try:
            replica = read_record(folder) is not None
            return retention.view(folder, reader, read_spec(folder), replica)
        finally:
            reader.close()
