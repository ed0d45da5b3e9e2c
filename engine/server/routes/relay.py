"""Relay: requests that start or change a remote run are forwarded to its engine."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import httpx
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from engine.client.transport import blocks_of, unreachable
from engine.protocol.requests.runs import Command, StartEvaluation, StartRun, TryJudge
from engine.remote.home_requests import Trial
from engine.remote.server import Host
from engine.server.bodies import Handler, body_of, json_of, path_of
from engine.server.composition import Services
from engine.server.routes.transfers import TransferRoutes
from engine.server.services.judges import judge_settings
from engine.trust.projects import require_run_trust, require_trust

STAYING = {
    "/runs/{run}/trajectories",
    "/runs/{run}/groups",
    "/runs/{run}/scenarios",
    "/runs/{run}/review_queue",
    "/runs/{run}/checkpoints/{step:int}/fetch",
    "/runs/{run}/bring_home",
    "/runs/{run}/send",
    "/runs/{run}/track",
    "/runs/{run}/notes",
}
"""POST routes that this engine handles itself for a remote run: they read its mirror, move the run
or a checkpoint, or concern trackers and notes."""
LOG = "/runs/{run}/log"
"""Route of the worker log, which is read on the server where possible."""
EXPORT = "/runs/{run}/checkpoints/{step:int}/export"
STARTING: dict[str, type[StartRun] | type[StartEvaluation]] = {
    "/runs": StartRun,
    "/evaluations": StartEvaluation,
}
PASSED_ON = {"content-type", "content-length"}
COMMAND = "/runs/{run}/command"
TRYING = {"/runs/{run}/judge", "/runs/{run}/judge/price", "/runs/{run}/judge/suggest"}
KINDS = {"application/json", "application/x-ndjson", "text/plain", "text/event-stream"}
"""Content types of remote responses that are passed on."""


class Relay:
    """Wraps route handlers to forward requests about remote runs to their server."""

    def __init__(self, services: Services) -> None:
        self._hosts, self._library = services.hosts, services.library
        self._transfers = TransferRoutes(services)

    def relayed(self, method: str, path: str, handler: Handler) -> Handler:
        """Return a handler for the route `method` `path`: it forwards commands to a run on a server
        to that server's engine, and passes all other requests to `handler`."""
        if method == "POST" and path in STARTING:
            return self._beginning(STARTING[path], handler)
        is_read = method == "GET" and path != LOG
        if not path.startswith("/runs/{run}") or is_read or path in STAYING:
            return handler

        async def there_or_here(request: Request) -> Response:
            run_id = request.path_params["run"]
            host = self._hosts.owner(self._library.find(run_id))
            if host is None:
                return await handler(request)
            if path == LOG and host.tunnel.state != "connected":
                return await handler(request)
            if path != LOG:  # a stranger's folder may name a server and a run of yours
                await asyncio.to_thread(require_run_trust, self._library.folder(run_id))
            if path == EXPORT:
                return await self._transfers.export(request, host, self._library.folder(run_id))
            return await self._ask_there(request, host, run_id, path)

        return there_or_here

    async def _ask_there(self, request: Request, host: Host, run_id: str, path: str) -> Response:
        """Forward a request to the engine on `host`; meanwhile the remote run may send judge calls
        to this machine, which has the API keys."""
        folder, lasting = self._library.folder(run_id), contextlib.ExitStack()
        if path in TRYING:
            trial_request = await body_of(request, TryJudge)
            config, _ = await asyncio.to_thread(judge_settings, folder.parents[1], trial_request)
            trial = Trial(folder.name, host.spec.name, folder.parents[1], config)
            lasting.enter_context(self._hosts.home_requests.trial(trial))
        elif path == COMMAND:
            command = await body_of(request, Command)
            if command.action in ("resume", "extend"):
                await asyncio.to_thread(self._hosts.home_requests.resume, host.spec.name, folder)
        return await _pass_on(request, host, run_id, lasting)

    def _beginning(self, body: type[StartRun] | type[StartEvaluation], handler: Handler) -> Handler:
        async def there_or_here(request: Request) -> Response:
            start = await body_of(request, body)
            if not start.host:
                return await handler(request)
            require_trust(path_of(start.project))
            folder = await self._hosts.start(start)
            return json_of(await asyncio.to_thread(self._library.summary, folder))

        return there_or_here


async def _pass_on(
    request: Request, host: Host, run_id: str, lasting: contextlib.ExitStack
) -> Response:
    """Forward the request to the remote engine, and stream its response. `lasting` is closed with
    it. Raises Refused while the server is not connected."""
    try:
        return await _answered(request, host, run_id, lasting)
    except BaseException:
        lasting.close()
        raise


async def _answered(
    request: Request, host: Host, run_id: str, lasting: contextlib.ExitStack
) -> Response:
    http = host.tunnel.client.http
    headers = {name: value for name, value in request.headers.items() if name in PASSED_ON}
    relayed = http.build_request(
        request.method,
        request.url.path,
        params=list(request.query_params.multi_items()),
        headers=headers,
        content=await request.body(),
        timeout=httpx.Timeout(None, connect=10.0),
    )
    try:
        answer = await http.send(relayed, stream=True)
    except httpx.TransportError as error:
        raise unreachable(error) from error
    if request.method != "GET":
        host.mirrors.touch(run_id)

    async def blocks() -> AsyncIterator[bytes]:
        try:
            async with contextlib.aclosing(blocks_of(answer)) as coming:
                async for block in coming:
                    yield block
        finally:  # whoever hangs up here hangs up there
            lasting.close()
            await answer.aclose()

    kind = answer.headers.get("content-type", "").partition(";")[0]
    media_type = kind if kind in KINDS else "application/octet-stream"
    return StreamingResponse(blocks(), answer.status_code, media_type=media_type)
