"""Routes of external scripts, which make the rollouts themselves: open, train, log, close."""

from starlette.requests import Request
from starlette.responses import Response

from engine.integrations.scripts.logged_trajectories import store_logged
from engine.protocol.requests.scripts import CloseOutside, LogOutside, OpenOutside, TrainGroups
from engine.server.bodies import Routes, body_of, json_of
from engine.server.composition import Services


class ScriptRoutes:
    def __init__(self, services: Services) -> None:
        self._scripts, self._lifecycle = services.scripts, services.lifecycle

    def routes(self) -> Routes:
        return [
            ("POST", "/outside", self.open),
            ("POST", "/runs/{run}/outside/train", self.train),
            ("POST", "/runs/{run}/outside/log", self.log),
            ("POST", "/runs/{run}/outside/close", self.close),
        ]

    async def open(self, request: Request) -> Response:
        return json_of(await self._scripts.open(await body_of(request, OpenOutside)))

    async def train(self, request: Request) -> Response:
        body = await body_of(request, TrainGroups)
        return json_of(await self._scripts.session(request.path_params["run"]).train(body))

    async def log(self, request: Request) -> Response:
        body, run_id = await body_of(request, LogOutside), request.path_params["run"]
        session = self._scripts.session(run_id)
        chat = await session.chat()
        async with self._lifecycle.opened(run_id) as opened:
            await store_logged(opened.run, body, session.logs, session.known, chat)
        return Response(status_code=204)

    async def close(self, request: Request) -> Response:
        body = await body_of(request, CloseOutside)
        return json_of(await self._scripts.close(request.path_params["run"], body))
