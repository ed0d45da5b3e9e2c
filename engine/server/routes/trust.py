"""Route of what the person trusts and confirms."""

import asyncio
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response

from engine.protocol.requests.runs import Confirm
from engine.server.bodies import body_of
from engine.trust.confirmation import confirm

Handler = Callable[[Request], Awaitable[Response]]


class TrustRoutes:
    """`on_trusted` is called after a project was trusted: its queued runs may begin."""

    def __init__(self, on_trusted: Callable[[], None]) -> None:
        self._on_trusted = on_trusted

    def routes(self) -> list[tuple[str, str, Handler]]:
        return [("POST", "/confirmations", self.confirm)]

    async def confirm(self, request: Request) -> Response:
        asked = await body_of(request, Confirm)
        await asyncio.to_thread(confirm, asked.confirmation)
        if asked.confirmation.kind == "project":
            self._on_trusted()
        return Response(status_code=204)
