"""Routes of sweeps: plan, start, list, view, events and commands."""

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from engine.protocol.problems import AtelierError, in_one_line
from engine.protocol.requests.sweeps import ActOnSweep, StartSweep
from engine.server.bodies import Routes, body_of, json_list, json_of, number_of, path_of
from engine.server.composition import Services
from engine.server.event_stream import follow


class SweepRoutes:
    def __init__(self, services: Services) -> None:
        self._sweeps, self._broadcast = services.sweeps, services.broadcast
        self._touch = services.touch

    def routes(self) -> Routes:
        return [
            ("GET", "/sweeps", self.sweeps),
            ("POST", "/sweeps", self.start),
            ("POST", "/sweeps/plan", self.plan),
            ("GET", "/sweeps/{sweep}", self.sweep),
            ("POST", "/sweeps/{sweep}", self.act),
            ("GET", "/sweeps/{sweep}/events", self.events),
        ]

    async def sweeps(self, request: Request) -> Response:
        project = request.query_params.get("project")
        return json_list(await self._sweeps.listed(path_of(project) if project else None))

    async def start(self, request: Request) -> Response:
        return json_of(await self._sweeps.start(await body_of(request, StartSweep)))

    async def plan(self, request: Request) -> Response:
        return json_of(await self._sweeps.plan(await body_of(request, StartSweep)))

    async def sweep(self, request: Request) -> Response:
        return json_of(await self._sweeps.view(request.path_params["sweep"]))

    async def act(self, request: Request) -> Response:
        body = await body_of(request, ActOnSweep)
        return json_of(await self._sweeps.act(request.path_params["sweep"], body))

    async def events(self, request: Request) -> Response:
        """Stream the whole view (`SweepView`) after each change, from the revision after `after`
        on; the id of an event is the revision. Intermediate revisions may be skipped."""
        sweep_id = (await self._sweeps.view(request.path_params["sweep"])).id
        after = int(number_of(request, "after"))

        def read(after: int) -> tuple[list[str], int]:
            return self._sweeps.page(sweep_id, after)

        async def lines():  # type: ignore[no-untyped-def]
            try:
                async for line in follow(self._broadcast, sweep_id, read, after):
                    self._touch()
                    yield line
            except AtelierError as error:  # the answer has begun: its last line says it
                yield f": {in_one_line(error)}\n\n"

        return StreamingResponse(lines(), media_type="text/event-stream")
