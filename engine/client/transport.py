"""How a request reaches the engine and how its answer is read, whatever it is about.

Raises `Refused` (the engine's own problem) for anything it declines, and `LaunchError` with code
`engine.unreachable` when nobody answers.
"""

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx
from pydantic import BaseModel, TypeAdapter, ValidationError

from engine.protocol.problems import LaunchError, Problem, Refused

T = TypeVar("T", bound=BaseModel)

SILENCE_S = 20.0
"""A stream carries a comment every 5 s: this long without a byte, the engine is gone."""


class Transport:
    """One engine, one token. Use as an async context manager, inside one event loop."""

    def __init__(
        self, port: int, token: str, timeout_s: float = 30.0, socket: Path | None = None
    ) -> None:
        """`socket` leads to an engine on another machine, where `port` is its own."""
        self.port = port
        self._http = httpx.AsyncClient(
            transport=httpx.AsyncHTTPTransport(uds=str(socket)) if socket else None,
            base_url=f"http://127.0.0.1:{port}",
            headers={"Authorization": f"Bearer {token}"},
            timeout=httpx.Timeout(timeout_s, connect=5.0),
            trust_env=False,  # a proxy must never see loopback traffic
        )

    @property
    def http(self) -> httpx.AsyncClient:
        """For who passes on what others have asked."""
        return self._http

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

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
        return answer.model_validate_json(response.content)

    async def _told(
        self, path: str, body: BaseModel, item: type[T] | TypeAdapter[T]
    ) -> AsyncGenerator[T, None]:
        """Records as they come, one a line; leaving the loop cancels what is still to come."""
        try:
            async with self._http.stream(
                "POST", path, json=body.model_dump(mode="json"), timeout=None
            ) as response:
                if response.is_error:
                    await response.aread()
                    raise refusal(response)
                async for line in response.aiter_lines():
                    yield _line(line, item)
        except httpx.TransportError as error:
            raise unreachable(error) from error

    async def _streamed(self, path: str, **params: Any) -> AsyncGenerator[str, None]:
        """The data lines of a stream that goes on until the engine closes it or falls silent."""
        timeout = httpx.Timeout(SILENCE_S, connect=5.0)
        try:
            async with self._http.stream("GET", path, params=params, timeout=timeout) as response:
                if response.status_code != httpx.codes.OK:
                    await response.aread()
                    raise refusal(response)
                async for line in response.aiter_lines():
                    if line.startswith("data:"):
                        yield line[5:].strip()
        except httpx.TransportError as error:
            raise unreachable(error) from error

    async def _list(
        self, path: str, item: type[T], params: dict[str, Any] | None = None
    ) -> list[T]:
        response = await self._send("GET", path, params=params)
        return TypeAdapter(list[item]).validate_json(response.content)  # type: ignore[valid-type]

    async def _send(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        try:
            response = await self._http.request(method, path, **arguments)
        except httpx.TransportError as error:
            raise unreachable(error) from error
        if response.is_error:
            raise refusal(response)
        return response


def _line(line: str, item: type[T] | TypeAdapter[T]) -> T:
    """One record; a line that is a problem instead is raised."""
    try:
        if isinstance(item, TypeAdapter):
            return item.validate_json(line)
        return item.model_validate_json(line)
    except ValidationError:
        raise Refused(Problem.model_validate_json(line)) from None


def refusal(response: httpx.Response) -> Refused:
    try:
        return Refused(Problem.model_validate(json.loads(response.content)))
    except (ValueError, ValidationError):
        return Refused.of(
            f"engine.http_{response.status_code}",
            f"The engine answered {response.status_code} to {response.request.url.path}.",
            detail=response.text[:2000],
        )


def unreachable(error: httpx.TransportError) -> LaunchError:
    return LaunchError.of(
        "engine.unreachable",
        "The engine does not answer.",
        "It is tried again by itself; a run that lives goes on without the window.",
        detail=f"{type(error).__name__}: {error}",
    )
