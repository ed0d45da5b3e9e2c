"""Routes of remote servers: the list, actions on them, answers to their questions."""

from starlette.requests import Request
from starlette.responses import Response

from engine.protocol.requests.remote import ActOnHost, AddHost, Answer
from engine.server.bodies import Routes, body_of, json_of
from engine.server.composition import Services

LONGEST_WAIT_S = 20.0


class HostRoutes:
    def __init__(self, services: Services) -> None:
        self._hosts = services.hosts

    def routes(self) -> Routes:
        return [
            ("GET", "/hosts", self.hosts),
            ("GET", "/hosts/known", self.known),
            ("POST", "/hosts", self.add),
            ("POST", "/hosts/{host}", self.act),
            ("POST", "/hosts/{host}/answer", self.answer),
        ]

    async def hosts(self, request: Request) -> Response:
        """List of servers, at once, or with `after` and `wait` as soon as something has changed."""
        after = int(request.query_params.get("after", 0))
        wait = min(float(request.query_params.get("wait", 0)), LONGEST_WAIT_S)
        return json_of(await self._hosts.listed(after, wait))

    async def known(self, request: Request) -> Response:
        found = await self._hosts.listed()
        return json_of(found.model_copy(update={"known": await self._hosts.known()}))

    async def add(self, request: Request) -> Response:
        await self._hosts.add((await body_of(request, AddHost)).spec)
        return json_of(await self._hosts.listed())

    async def act(self, request: Request) -> Response:
        await self._hosts.act(request.path_params["host"], await body_of(request, ActOnHost))
        return json_of(await self._hosts.listed())

    async def answer(self, request: Request) -> Response:
        said = await body_of(request, Answer)
        self._hosts.host(request.path_params["host"]).answer(said.question, said.value)
        return Response(status_code=204)
