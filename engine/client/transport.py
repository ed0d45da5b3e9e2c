"""HTTP transport to an engine.

Raises `Refused` with the engine's problem for a refused request, and `LaunchError` with code
`engine.unreachable` if the engine does not respond, or `engine.bad_answer` if a response is too
large, malformed, compressed (an engine never compresses) or not text: the engine may be on an
untrusted server.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Self, TypeVar

import httpcore
import httpx
from pydantic import BaseModel, TypeAdapter, ValidationError

from engine.protocol.problems import LaunchError, Problem, Refused, first_invalid
from engine.runtime.closing import finished

MOST_ANSWER_BYTES = 2**27
"""Size limit of one response body, unless the call sets another."""
MOST_LINE_BYTES = 2**25
"""Size limit of one line of a stream."""
PLAIN = {"Accept-Encoding": "identity"}


async def blocks_of(response: httpx.Response) -> AsyncGenerator[bytes, None]:
    """Blocks of the body as they arrive. Raises LaunchError if the body is compressed."""
    if response.headers.get("content-encoding", "identity").lower() not in ("", "identity"):
        raise bad_answer(response, "its body is compressed, but engines never compress responses")
    raw = response.aiter_raw()
    try:
        async for block in raw:
            yield block
    finally:
        await _end(response, raw)


async def _end(response: httpx.Response, raw: AsyncIterator[bytes]) -> None:
    """End a body that was not read completely. The generators inside httpx are suspended at a
    `yield` and end only by further reading, which a closed connection stops."""
    await response.aclose()
    with suppress(httpx.StreamError, httpx.TransportError):
        async for _ in raw:
            pass


async def read_body(response: httpx.Response, most: int = MOST_ANSWER_BYTES) -> bytes:
    """Read the whole body. Raises LaunchError if it is larger than `most` bytes."""
    body = bytearray()
    async with aclosing(blocks_of(response)) as blocks:
        async for block in blocks:
            body += block
            if len(body) > most:
                raise bad_answer(response, f"it is larger than {most / 2**20:.0f} MiB")
    return bytes(body)


async def lines_of(
    response: httpx.Response, most: int = MOST_LINE_BYTES
) -> AsyncGenerator[str, None]:
    """Lines of the body, split at line feeds only, since JSON may contain other line separators of
    Unicode. Raises LaunchError if a line is longer than `most` bytes or is not UTF-8."""
    rest = bytearray()
    async with aclosing(blocks_of(response)) as blocks:
        async for block in blocks:
            searched = len(rest)
            rest += block
            start = 0
            while (end := rest.find(b"\n", max(searched, start))) >= 0:
                yield _text(rest[start:end], response)
                start = end + 1
            del rest[:start]
            if len(rest) > most:
                raise bad_answer(response, f"a line is longer than {most / 2**20:.0f} MiB")
    if rest:
        yield _text(rest, response)


def _text(line: bytearray, response: httpx.Response) -> str:
    try:
        return line.decode().rstrip("\r")
    except UnicodeDecodeError as error:
        raise bad_answer(response, "it is not UTF-8") from error


def bad_answer(response: httpx.Response, why: str, detail: str = "") -> LaunchError:
    """Error for a response that no engine of Atelier would send; `why` ends its message."""
    return LaunchError.of(
        "engine.bad_answer",
        f"The engine sent an invalid response: {why}.",
        "Update Atelier on both machines to the same version. If you do not trust the server, "
        "disconnect from it.",
        where=response.request.url.path,
        detail=detail[:2000],
    )


T = TypeVar("T", bound=BaseModel)
A = TypeVar("A")

MOST_REFUSAL_BYTES = 2**20
SILENCE_S = 20.0
"""Read timeout in seconds: a stream carries a comment every 5 s."""
OPENED = ("connection.connect_tcp.complete", "connection.connect_unix_socket.complete")
LIMITS = httpx.Limits(max_connections=100, max_keepalive_connections=20, keepalive_expiry=3.0)
"""Idle connections are closed after 3 s, before the engine closes them after 5 s: a request on a
connection that is being closed would be lost."""


class _CancelSafeTransport(httpx.AsyncHTTPTransport):
    """Transport that closes expired connections even if the request that finds them is cancelled.

    httpcore 1.0 shields this work from cancellation by anyio, not from `Task.cancel()`: it forgot
    the connections that it had not closed yet, and they stayed open.
    """

    def __init__(self, uds: str | None) -> None:
        super().__init__(uds=uds, limits=LIMITS, verify=False)  # no TLS on loopback
        close = self._pool._close_connections

        async def close_all(closing: list[httpcore.AsyncConnectionInterface]) -> None:
            if closing:
                await finished(close(closing))

        self._pool._close_connections = close_all  # type: ignore[method-assign]


class Transport:
    """Connection to one engine with one token. Use as an async context manager, inside one event
    loop."""

    def __init__(
        self, port: int, token: str, timeout_s: float = 30.0, socket: Path | None = None
    ) -> None:
        """`socket` is the local end of a tunnel to a remote engine, whose port is `port`."""
        self.port = port
        uds = str(socket) if socket else None
        self._http = httpx.AsyncClient(
            transport=_CancelSafeTransport(uds),
            base_url=f"http://127.0.0.1:{port}",
            headers={"Authorization": f"Bearer {token}", **PLAIN},
            timeout=httpx.Timeout(timeout_s, connect=5.0),
            trust_env=False,  # a proxy must never see loopback traffic
            event_hooks={"request": [self._trace]},
        )

    @property
    def http(self) -> httpx.AsyncClient:
        """HTTP client for forwarding requests of others. Raises LaunchError if it is closed."""
        self._check_open()
        return self._http

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections; requests that still wait fail with LaunchError."""
        await self._http.aclose()

    def _check_open(self) -> None:
        if self._http.is_closed:
            raise unreachable(httpx.CloseError("the client is closed"))

    async def _trace(self, request: httpx.Request) -> None:
        request.extensions["trace"] = self._close_late

    async def _close_late(self, event: str, details: dict[str, Any]) -> None:
        """Close a connection that was still being opened when the client was closed: the pool
        closes only those that it knows (https://www.encode.io/httpcore/extensions/#trace)."""
        if event in OPENED and self._http.is_closed:
            await details["return_value"].aclose()

    @asynccontextmanager
    async def _response(
        self, method: str, path: str, **arguments: Any
    ) -> AsyncGenerator[httpx.Response, None]:
        """Send a request and give its response, whose body is still to be read. Raises LaunchError
        if the engine cannot be reached or the client is closed."""
        self._check_open()
        try:
            async with self._http.stream(method, path, **arguments) as response:
                yield response
        except httpx.TransportError as error:
            raise unreachable(error) from error

    async def _ask(
        self,
        method: str,
        path: str,
        answer: type[T],
        body: BaseModel | None = None,
        params: dict[str, Any] | None = None,
        **options: Any,
    ) -> T:
        json_body = body.model_dump(mode="json") if body else None
        response = await self._send(method, path, json=json_body, params=params, **options)
        return parse(response, TypeAdapter(answer))

    async def _records(
        self, path: str, body: BaseModel | None, item: type[T] | TypeAdapter[T]
    ) -> AsyncGenerator[T, None]:
        """Yield records of a JSON Lines response; closing the iterator cancels the rest."""
        json_body = body.model_dump(mode="json") if body else {}
        async with self._response("POST", path, json=json_body, timeout=None) as response:
            if response.is_error:
                raise refusal(response, await read_body(response, MOST_REFUSAL_BYTES))
            async with aclosing(lines_of(response)) as lines:
                async for line in lines:
                    yield _line(line, item, response)

    async def _streamed(
        self, path: str, most_line_bytes: int = MOST_LINE_BYTES, **params: Any
    ) -> AsyncGenerator[str, None]:
        """Yield data lines of a stream until the engine closes it or is silent."""
        timeout = httpx.Timeout(SILENCE_S, connect=5.0)
        async with self._response("GET", path, params=params, timeout=timeout) as response:
            if response.status_code != httpx.codes.OK:
                raise refusal(response, await read_body(response, MOST_REFUSAL_BYTES))
            async with aclosing(lines_of(response, most_line_bytes)) as lines:
                async for line in lines:
                    if line.startswith("data:"):
                        yield line[5:].strip()

    async def _list(
        self, path: str, item: type[T], params: dict[str, Any] | None = None
    ) -> list[T]:
        response = await self._send("GET", path, params=params)
        return parse(response, TypeAdapter(list[item]))  # type: ignore[valid-type, type-var]

    async def _send(
        self, method: str, path: str, most_bytes: int = MOST_ANSWER_BYTES, **arguments: Any
    ) -> httpx.Response:
        """Send a request; returns the response with its body. Raises LaunchError if the body is
        larger than `most_bytes`."""
        async with self._response(method, path, **arguments) as response:
            most = MOST_REFUSAL_BYTES if response.is_error else most_bytes
            body = await read_body(response, most)
        if response.is_error:
            raise refusal(response, body)
        return httpx.Response(
            response.status_code, headers=response.headers, content=body, request=response.request
        )


def parse(response: httpx.Response, form: TypeAdapter[A]) -> A:
    """Parse the body of a response as `form`. Raises LaunchError if it does not match that type."""
    try:
        return form.validate_json(response.content)
    except ValidationError as error:
        raise bad_answer(response, first_invalid(error), str(error)) from error


def _line(line: str, item: type[T] | TypeAdapter[T], response: httpx.Response) -> T:
    """Parse one record; a line that holds a problem is raised."""
    form: TypeAdapter[T] = item if isinstance(item, TypeAdapter) else TypeAdapter(item)
    try:
        return form.validate_json(line)
    except ValidationError as error:
        try:
            problem = Problem.model_validate_json(line)
        except ValidationError:
            raise bad_answer(response, first_invalid(error), str(error)) from error
    raise Refused(problem)


def refusal(response: httpx.Response, body: bytes) -> Refused:
    """Refused error with the engine's problem in the body, or else the HTTP status."""
    try:
        return Refused(Problem.model_validate_json(body))
    except ValidationError:
        return Refused.of(
            f"engine.http_{response.status_code}",
            f"The engine returned HTTP {response.status_code} for {response.request.url.path}.",
            detail=body[:2000].decode(errors="replace"),
        )


def unreachable(error: httpx.TransportError) -> LaunchError:
    return LaunchError.of(
        "engine.unreachable",
        "The engine does not respond.",
        "Reconnecting automatically; active runs continue.",
        detail=f"{type(error).__name__}: {error}",
    )
