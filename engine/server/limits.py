"""Limits on requests: size of the body by route, and number of open requests by key.

ASGI middleware between authentication and routes. A body whose declared size exceeds the limit is
refused before it is read; a body without a declared size is counted while it is read.
"""

import asyncio
import json
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from engine.protocol.problems import Problem
from engine.rollout.gateway import anthropic
from engine.rollout.gateway.gateway import Gateway
from engine.rollout.gateway.sessions import RequestLimits

MB = 2**20
DEFAULT_BYTES = MB
ROUTES: tuple[tuple[str, str, int], ...] = (
    ("PUT", r"/scenarios", 64 * MB),
    ("POST", r"/runs/[^/]+/outside/train", 256 * MB),
    ("POST", r"/runs/[^/]+/outside/log", 256 * MB),
    ("POST", r"/runs/[^/]+/labels(/preview)?", 8 * MB),
    ("POST", r"/arena", 8 * MB),
    ("POST", r"/drafts(/tools)?", 8 * MB),
    ("PUT", r"/drafts", 64 * MB),
    ("POST", r"/home-requests/[^/]+", 16 * MB),
    ("POST", r"/sync/(missing|commit)", 64 * MB),
)
"""Method, path and size limit of routes whose bodies may be longer than `DEFAULT_BYTES`."""
CONTENTS = re.compile(r"/sync/contents/[^/]+")
"""Path for file contents: limited only by the size that the request declares."""
LINGER_S, LINGER_BYTES = 2.0, 32 * MB
"""Seconds and bytes for which a refused body is still read, so that its sender gets to see the
answer."""


class BodyTooLong(HTTPException):
    """Error for a body that is longer than its route allows; raised while it is read."""

    def __init__(self, most: int) -> None:
        super().__init__(413, too_long(most).message)
        self.most = most


def too_long(most: int) -> Problem:
    size = f"{most / MB:.4g} MB" if most >= MB else f"{most} bytes"
    return Problem(
        code="request.too_long",
        message=f"The body of the request is larger than {size}, the limit of this route.",
        hint="Send a smaller request.",
    )


async def answer_too_long(request: Request, error: BodyTooLong) -> Response:
    """Exception handler for a body that exceeded its limit while a route read it."""
    headers = {"connection": "close", "content-type": "application/json"}
    return Response(_body(request.scope, 413, too_long(error.most)), 413, headers)


async def answer_gone(request: Request, error: ClientDisconnect) -> Response:
    """Exception handler for a disconnected client; the response is never read."""
    return Response(status_code=400)


def most_bytes(scope: Scope) -> int:
    """Size limit in bytes of the body of a control request."""
    method, path = scope["method"], scope["path"]
    if method == "PUT" and CONTENTS.fullmatch(path):
        return _declared(scope)
    for known, pattern, most in ROUTES:
        if method == known and re.fullmatch(pattern, path):
            return most
    return DEFAULT_BYTES


def _declared(scope: Scope) -> int:
    """Bytes of a file that are still to come, as the request declares."""
    query = parse_qs(scope.get("query_string", b"").decode("latin-1"))
    try:
        size, offset = int(query["bytes"][0]), int(query["offset"][0])
    except (KeyError, ValueError):
        return DEFAULT_BYTES
    return max(0, size - max(0, offset))


class BodyLimit:
    """Middleware that refuses bodies longer than `most_of` allows with 413."""

    def __init__(self, app: ASGIApp, most_of: Callable[[Scope], int]) -> None:
        self._app, self._most_of = app, most_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        most = self._most_of(scope)
        declared = header(scope, b"content-length")
        if declared is not None and (len(declared) > 15 or int(declared) > most):  # digits: by h11
            return await refuse(scope, receive, send, 413, too_long(most))
        counted = _Counted(receive, send, most)
        await self._app(scope, counted.receive, counted.send)


class _Counted:
    """Request whose body is counted as it is read."""

    def __init__(self, receive: Receive, send: Send, most: int) -> None:
        self._receive, self._send, self._most = receive, send, most
        self._count = 0

    async def receive(self) -> Message:
        message = await self._receive()
        self._count += len(message.get("body", b""))
        if self._count > self._most:
            raise BodyTooLong(self._most)
        return message

    async def send(self, message: Message) -> None:
        """Send a message; drain the rest of a too long body before the response ends."""
        last = message["type"] == "http.response.body" and not message.get("more_body", False)
        if last and self._count > self._most:
            await self._send({**message, "more_body": True})
            await drain(self._receive)
            message = {"type": "http.response.body", "body": b""}
        await self._send(message)


class KeyLimit:
    """Middleware that queues requests under one key, and refuses those beyond its limit with 429,
    which OpenAI clients retry after a moment."""

    def __init__(self, app: ASGIApp, lane_of: Callable[[str], RequestLimits]) -> None:
        self._app, self._lane_of = app, lane_of
        self._open: dict[str, tuple[asyncio.Semaphore, list[int]]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith("/v1/"):
            return await self._app(scope, receive, send)
        key = api_key(scope)
        lane = self._lane_of(key)
        places, count = self._open.setdefault(key, (asyncio.Semaphore(lane.active), [0]))
        if count[0] >= lane.active + lane.waiting:
            problem = Problem(
                code="gateway.too_many_requests",
                message=f"This key already has {count[0]} open requests.",
                hint="Wait for responses before you send more.",
            )
            return await refuse(scope, receive, send, 429, problem, ((b"retry-after", b"1"),))
        count[0] += 1
        try:
            async with places:
                await self._app(scope, receive, send)
        finally:
            count[0] -= 1
            if not count[0]:
                self._open.pop(key, None)


HANDLERS: dict[Any, Any] = {BodyTooLong: answer_too_long, ClientDisconnect: answer_gone}
"""Handlers for Starlette's `exception_handlers`."""


def limited(app: ASGIApp, gateway: Gateway) -> ASGIApp:
    """Wrap the ASGI application `app` of an engine, including the routes of its `gateway`, so that
    limits on body size and concurrent requests apply."""

    def most(scope: Scope) -> int:
        if scope["path"].startswith("/v1/"):
            return gateway.most_bytes(api_key(scope))
        return most_bytes(scope)

    return BodyLimit(KeyLimit(app, gateway.lane), most)


async def refuse(
    scope: Scope,
    receive: Receive,
    send: Send,
    status: int,
    problem: Problem | None,
    headers: tuple[tuple[bytes, bytes], ...] = (),
) -> None:
    """Respond with an error without calling the routes: at the gateway in the form of OpenAI or
    Anthropic, with an empty body if `problem` is None. A connection whose request has a body is
    then closed."""
    body = _body(scope, status, problem)
    kept = [
        (b"content-length", str(len(body)).encode()),
        (b"x-content-type-options", b"nosniff"),
        *([(b"content-type", b"application/json")] if body else []),
        *headers,
    ]
    has_body = has_content(scope)
    if has_body:
        kept.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status, "headers": kept})
    await send({"type": "http.response.body", "body": body, "more_body": has_body})
    if has_body:
        await drain(receive)
        await send({"type": "http.response.body", "body": b""})


def _body(scope: Scope, status: int, problem: Problem | None) -> bytes:
    if problem is None:
        return b""
    if scope["path"].startswith("/v1/messages"):
        return json.dumps(anthropic.error_value(status, str(problem))).encode()
    if scope["path"].startswith("/v1/"):
        error = {"message": str(problem), "type": problem.code, "code": problem.code}
        return json.dumps({"error": error}).encode()
    return problem.model_dump_json().encode()


async def drain(receive: Receive) -> None:
    """Read and drop the rest of a body, for at most `LINGER_S` seconds and `LINGER_BYTES` bytes."""
    count = 0
    try:
        async with asyncio.timeout(LINGER_S):
            while count < LINGER_BYTES:
                message = await receive()
                count += len(message.get("body", b""))
                if not message.get("more_body", False):
                    return
    except TimeoutError:
        return


def has_content(scope: Scope) -> bool:
    return (header(scope, b"content-length") or b"0") != b"0" or (
        header(scope, b"transfer-encoding") is not None
    )


def api_key(scope: Scope) -> str:
    """API key that a request carries, in the header of OpenAI's clients or of Anthropic's."""
    sent = header(scope, b"authorization")
    if sent is not None:
        return sent.decode("latin-1").removeprefix("Bearer ")
    return (header(scope, b"x-api-key") or b"").decode("latin-1")


def header(scope: Scope, name: bytes) -> bytes | None:
    """Value of the first header of this name (in lower case)."""
    return next((value for key, value in scope.get("headers", ()) if key == name), None)
