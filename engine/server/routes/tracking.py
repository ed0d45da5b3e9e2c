"""Routes of experiment tracking: the state of a run's trackers, and sending what they lack."""

from starlette.requests import Request
from starlette.responses import Response

from engine.protocol.requests.runs import TrackRun
from engine.server.bodies import Routes, body_of, json_of
from engine.server.composition import Services


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
        """Begin to send; `trackers` has the progress."""
        asked, run_id = await body_of(request, TrackRun), request.path_params["run"]
        folder = self._library.folder(run_id)
        self._tracking.send(folder, asked.to)
        return json_of(await self._tracking.views(run_id, folder))
