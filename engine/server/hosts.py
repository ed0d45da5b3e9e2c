"""Routes of servers: the list, what is done with one, answers to its questions; and the relay, by
which what is asked of a run that lives elsewhere is asked there.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import httpx
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from engine.client.transport import unreachable
from engine.hosts.desk import HostDesk
from engine.hosts.host import Host
from engine.protocol.hosts import ActOnHost, AddHost, Answer
from engine.protocol.requests import StartEvaluation, StartRun
from engine.server.library import Library
from engine.server.moving import MovingRoutes
from engine.server.supervisor import Supervisor
from engine.server.wire import body_of, json_of

Handler = Callable[[Request], Awaitable[Response]]

LONGEST_WAIT_S = 20.0
STAYING = {
    "/runs/{run}/trajectories",
    "/runs/{run}/groups",
    "/runs/{run}/checkpoints/{step:int}/fetch",
    "/runs/{run}/bring_home",
    "/runs/{run}/send",
    "/runs/{run}/track",
}
"""What is asked with POST and answered here: of the replica, or about where the run is."""
LOG = "/runs/{run}/log"
"""What workers write is read there, where that can be."""
EXPORT = "/runs/{run}/checkpoints/{step:int}/export"
STARTING: dict[str, type[StartRun] | type[StartEvaluation]] = {
    "/runs": StartRun,
    "/evaluations": StartEvaluation,
}
PASSED_ON = {"content-type", "content-length"}


class HostRoutes:
    def __init__(
        self,
        desk: HostDesk,
        library: Library,
        supervisor: Supervisor,
        touch: Callable[[], None],
    ) -> None:
        self._desk, self._library = desk, library
        self.moving = MovingRoutes(desk, library, supervisor, touch)

    def routes(self) -> list[tuple[str, str, Handler]]:
        return [
            ("GET", "/hosts", self.hosts),
            ("GET", "/hosts/known", self.known),
            ("POST", "/hosts", self.add),
            ("POST", "/hosts/{host}", self.act),
            ("POST", "/hosts/{host}/answer", self.answer),
            *self.moving.routes(),
        ]

    async def hosts(self, request: Request) -> Response:
        """At once, or with `after` and `wait` as soon as something has changed."""
        after = int(request.query_params.get("after", 0))
        wait = min(float(request.query_params.get("wait", 0)), LONGEST_WAIT_S)
        return json_of(await self._desk.listed(after, wait))

    async def known(self, request: Request) -> Response:
        found = await self._desk.listed()
        return json_of(found.model_copy(update={"known": await self._desk.known()}))

    async def add(self, request: Request) -> Response:
        await self._desk.add((await body_of(request, AddHost)).spec)
        return json_of(await self._desk.listed())

    async def act(self, request: Request) -> Response:
        await self._desk.act(request.path_params["host"], await body_of(request, ActOnHost))
        return json_of(await self._desk.listed())

    async def answer(self, request: Request) -> Response:
        said = await body_of(request, Answer)
        self._desk.host(request.path_params["host"]).answer(said.question, said.value)
        return Response(status_code=204)

    # The relay

    def relayed(self, method: str, path: str, handler: Handler) -> Handler:
        """`handler`, but for runs that live elsewhere: they begin there, and whatever changes one
        is asked there."""
        if method == "POST" and path in STARTING:
            return self._beginning(STARTING[path], handler)
        is_read = method == "GET" and path != LOG
        if not path.startswith("/runs/{run}") or is_read or path in STAYING:
            return handler

        async def there_or_here(request: Request) -> Response:
            run_id = request.path_params["run"]
            host = self._desk.owner(self._library.folder(run_id))
            if host is None:
                return await handler(request)
            if path == LOG and not host.connected:
                return await handler(request)
            if path == EXPORT:
                return await self.moving.export(request, host, self._library.folder(run_id))
            return await _pass_on(request, host, run_id)

        return there_or_here

    def _beginning(self, body: type[StartRun] | type[StartEvaluation], handler: Handler) -> Handler:
        async def there_or_here(request: Request) -> Response:
            asked = await body_of(request, body)
            if not asked.host:
                return await handler(request)
            folder = await self._desk.start(asked)
            return json_of(await asyncio.to_thread(self._library.summary, folder))

        return there_or_here


async def _pass_on(request: Request, host: Host, run_id: str) -> Response:
    """The same request to the engine there; its answer as it comes. Raises Refused while the server
    is away."""
    http = host.tunnel.client.http
    headers = {name: value for name, value in request.headers.items() if name in PASSED_ON}
    asked = http.build_request(
        request.method,
        request.url.path,
        params=list(request.query_params.multi_items()),
        headers=headers,
        content=await request.body(),
        timeout=httpx.Timeout(None, connect=10.0),
    )
    try:
        answer = await http.send(asked, stream=True)
    except httpx.TransportError as error:
        raise unreachable(error) from error
    if request.method != "GET":
        host.mirrors.touch(run_id)

    async def blocks() -> AsyncIterator[bytes]:
        try:
            async for block in answer.aiter_raw():
                yield block
        finally:  # whoever hangs up here hangs up there
            await answer.aclose()

    kind = answer.headers.get("content-type")
    return StreamingResponse(blocks(), answer.status_code, media_type=kind)
