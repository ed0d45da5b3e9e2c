"""Tracker routes of the fake engine."""

from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse

from engine.protocol.config.tracking import TrackerList
from engine.protocol.requests.runs import LendKeys, TrackRun


class FakeTracking:
    """Tracker state by run in `views`; `sent` and `lent` record requests."""

    def __init__(self) -> None:
        self.views: dict[str, TrackerList] = {}
        self.sent: list[str] = []
        self.lent: dict[str, str] = {}

    def routes(self) -> list[tuple[Any, ...]]:
        handlers: list[tuple[str, Callable[..., Any], str]] = [
            ("/runs/{run}/trackers", self._trackers, "GET"),
            ("/runs/{run}/track", self._track, "POST"),
            ("/keys", self._lend, "POST"),
        ]
        return list(handlers)

    async def _trackers(self, request: Request) -> TrackerList:
        return self.views.get(request.path_params["run"], TrackerList())

    async def _track(self, request: Request) -> TrackerList:
        TrackRun.model_validate(await request.json())
        run = request.path_params["run"]
        self.sent.append(run)
        trackers = [
            view.model_copy(update={"state": "in_step", "behind": 0, "problem": None})
            for view in self.views.get(run, TrackerList()).trackers
        ]
        self.views[run] = TrackerList(trackers=trackers)
        return self.views[run]

    async def _lend(self, request: Request) -> JSONResponse:
        body = LendKeys.model_validate(await request.json())
        self.lent |= body.trackers
        return JSONResponse({})
