"""Proxy with a stable address for the script's clients, for as long as the script runs.

Every request is forwarded to the engine's gateway unchanged. A request without a response is
repeated with the restarted engine, so a killed engine costs time but no rollout.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import httpx

from engine.protocol.problems import AtelierError

GatewayOf = Callable[[str], Awaitable[tuple[str, int] | None]]
"""Returns address and number of openings of the gateway for a key; None if unknown."""
Again = Callable[[str, int], Awaitable[None]]
"""Reopens the run of a key, unless its number of openings exceeds the given one by now. Raises
AtelierError on failure."""

TRIES = 5
LARGEST = 2**28
"""Maximum size of a request in bytes."""
KEPT = ("content-type", "authorization", "accept")


class Unanswered(Exception):
    """Error of a forwarded request: the engine did not answer, or does not know the key."""


class Relay:
    """HTTP proxy in the event loop that starts it."""

    def __init__(self, gateway_of: GatewayOf, again: Again) -> None:
        self._gateway_of, self._again = gateway_of, again
        self._runner: Any = None
        self._address = ""
        self._http: httpx.AsyncClient | None = None

    async def start(self) -> str:
        """Start the proxy once and return its address on loopback."""
        from aiohttp import web

        if self._runner is None:
            limits = httpx.Limits(max_connections=None, max_keepalive_connections=64)
            self._http = httpx.AsyncClient(timeout=None, limits=limits, trust_env=False)
            application = web.Application(client_max_size=LARGEST)
            application.router.add_route("*", "/v1/{path:.*}", self._pass_on)
            self._runner = web.AppRunner(application, access_log=None)
            await self._runner.setup()
            site = web.TCPSite(self._runner, "127.0.0.1", 0)
            await site.start()
            port = self._runner.addresses[0][1]
            self._address = f"http://127.0.0.1:{port}/v1"
        return self._address

    async def close(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        if self._http is not None:
            await self._http.aclose()
            self._http = None

    async def _pass_on(self, request: Any) -> Any:
        key = request.headers.get("authorization", "").removeprefix("Bearer ")
        body = await request.read()
        for _ in range(TRIES):
            found = await self._gateway_of(key)
            if found is None:
                return _refusal(401, "outside.no_key", "This API key does not belong to any model.")
            address, opened = found
            try:
                return await self._answer(request, address, body)
            except Unanswered:
                try:
                    await self._again(key, opened)
                except AtelierError as error:
                    return _refusal(400, error.problem.code, str(error))
        return _refusal(400, "engine.unreachable", f"The engine exited {TRIES} times in a row.")

    async def _answer(self, request: Any, address: str, body: bytes) -> Any:
        """Forward a request. Raises Unanswered as long as no part of the response was forwarded."""
        from aiohttp import web

        assert self._http is not None
        headers = {name: request.headers[name] for name in KEPT if name in request.headers}
        url = f"{address}/{request.match_info['path']}"
        outgoing = self._http.build_request(request.method, url, content=body, headers=headers)
        try:
            answer = await self._http.send(outgoing, stream=True)
        except httpx.TransportError as error:
            raise Unanswered from error
        try:
            if answer.status_code == httpx.codes.UNAUTHORIZED:
                raise Unanswered
            kind = answer.headers.get("content-type", "application/json")
            if not kind.startswith("text/event-stream"):
                try:
                    content = await answer.aread()
                except httpx.TransportError as error:
                    raise Unanswered from error
                return web.Response(
                    body=content, status=answer.status_code, headers={"content-type": kind}
                )
            passed = web.StreamResponse(status=answer.status_code, headers={"content-type": kind})
            await passed.prepare(request)
            async for part in answer.aiter_bytes():
                await passed.write(part)
            await passed.write_eof()
            return passed
        finally:
            await answer.aclose()


def _refusal(status: int, code: str, message: str) -> Any:
    from aiohttp import web

    return web.json_response(
        {"error": {"message": message, "type": code, "code": code}}, status=status
    )
