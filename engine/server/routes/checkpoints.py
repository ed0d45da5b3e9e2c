"""Routes of a run's checkpoints, and of its trackers."""

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from engine.protocol.records.runs import KeptCheckpoint
from engine.protocol.requests.runs import PinCheckpoint, TrackRun
from engine.remote.mirror.record import read_record
from engine.server.bodies import Routes, body_of, json_list, json_of
from engine.server.composition import Services
from engine.storage.checkpoints import retention
from engine.storage.run_folder.run import read_spec, run_reader


class CheckpointRoutes:
    """Checkpoints of a run: list, pin, delete."""

    def __init__(self, services: Services) -> None:
        self.library, self._lifecycle = services.library, services.lifecycle

    def routes(self) -> Routes:
        return [
            ("GET", "/runs/{run}/checkpoints", self.checkpoints),
            ("POST", "/runs/{run}/checkpoints/{step:int}/pin", self.pin),
            ("DELETE", "/runs/{run}/checkpoints/{step:int}", self.delete),
        ]

    async def checkpoints(self, request: Request) -> Response:
        return json_list(await asyncio.to_thread(self._view, request.path_params["run"]))

    async def pin(self, request: Request) -> Response:
        body, run_id = await body_of(request, PinCheckpoint), request.path_params["run"]
        async with self._lifecycle.opened(run_id) as opened:
            await retention.pin(opened.run, request.path_params["step"], body)
        return await self.checkpoints(request)

    async def delete(self, request: Request) -> Response:
        async with self._lifecycle.opened(request.path_params["run"]) as opened:
            await retention.delete(opened.run, request.path_params["step"])
        return await self.checkpoints(request)

    def _view(self, run_id: str) -> list[KeptCheckpoint]:
        folder = self.library.folder(run_id)
        with run_reader(folder) as reader:
            replica = read_record(folder) is not None
            return retention.checkpoint_rows(folder, reader, read_spec(folder), replica)


class TrackingRoutes:
    def __init__(self, services: Services) -> None:
        self._tracking, self._library = services.tracking, services.library

    def routes(self) -> Routes:
        return [
            ("GET", "/runs/{run}/trackers", self.trackers),
            ("POST", "/runs/{run}/track", self.track),
        ]

    async def trackers(self, request: Request) -> Response:
        run_id = request.path_params["run"]
        return json_of(await self._tracking.views(run_id, self._library.folder(run_id)))

    async def track(self, request: Request) -> Response:
        """Start sending a run to the trackers in the body, and respond with their state; the route
        `trackers` reports progress."""
        body, run_id = await body_of(request, TrackRun), request.path_params["run"]
        folder = self._library.folder(run_id)
        self._tracking.send(folder, body.to)
        return json_of(await self._tracking.views(run_id, folder))
