"""Bodies of requests and responses: pydantic both ways."""

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from engine.protocol.json_text import parse_json
from engine.protocol.problems import AtelierError, ConfigError, in_one_line

T = TypeVar("T", bound=BaseModel)
Handler = Callable[[Request], Awaitable[Response]]
Routes = list[tuple[str, str, Handler]]
"""Routes as (method, path, handler)."""
MOST_NUMBER = 2**53


async def body_of(request: Request, model: type[T]) -> T:
    return model.model_validate_json(await request.body())


def project_of(request: Request) -> Path:
    """Project folder in the query parameter `path`, resolved. Raises ConfigError if the parameter
    is missing or not a valid path."""
    value = request.query_params.get("path")
    if not value:
        raise ConfigError.of("request.no_path", "The request names no project.")
    return path_of(value)


def path_of(value: str) -> Path:
    """Convert text to a resolved path on this machine, which need not exist. Raises ConfigError if
    no file system takes it."""
    try:
        path = Path(value).expanduser().resolve()
        path.exists()  # raises for a name that no file system takes
    except (OSError, ValueError, RuntimeError) as error:
        raise ConfigError.of(
            "request.bad_path",
            f"{value[:200]!a} is not a path on this machine: {in_one_line(error)[:200]}.",
        ) from error
    return path


def text_of(request: Request, name: str) -> str:
    """Value of a query parameter. Raises ConfigError if it is missing."""
    value = request.query_params.get(name)
    if value is None:
        raise ConfigError.of("request.no_value", f"The request has no `{name}`.")
    return value


def number_of(request: Request, name: str, otherwise: int = 0) -> float:
    """Number in the query parameter `name`; `otherwise` if it is missing. Raises ConfigError unless
    it is from 0 to below 2⁵³."""
    text = request.query_params.get(name, str(otherwise))
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < MOST_NUMBER:
        raise ConfigError.of(
            "request.bad_number",
            f"`{name}` is not a number of at least 0: {text[:40]}.",
            "Send 0 or more.",
        )
    return number


def values_of(request: Request) -> dict[str, Any]:
    """Settings in the query parameter `values`: dotted key → value, as JSON; empty if it is
    missing. Raises ConfigError if it is not a JSON object."""
    text = request.query_params.get("values")
    try:
        values = parse_json(text) if text else {}
    except ValueError:
        values = None
    if not isinstance(values, dict):
        raise ConfigError.of(
            "request.bad_values",
            "The values are not a JSON object.",
            'Send an object such as {"train.steps": 10}.',
        )
    return values


def check_numbers(request: Request) -> None:
    """Raise ConfigError if an integer in the URL path is too large for the database."""
    for name, value in request.path_params.items():
        if isinstance(value, int) and value >= MOST_NUMBER:
            raise ConfigError.of("request.bad_number", f"`{name}` is too large.")


def json_of(value: BaseModel) -> Response:
    return Response(value.model_dump_json(), media_type="application/json")


def json_list(values: Any) -> Response:
    body = "[" + ",".join(value.model_dump_json() for value in values) + "]"
    return Response(body, media_type="application/json")


def json_lines(values: AsyncGenerator[BaseModel, None], touch: Callable[[], None]) -> Response:
    """Response that streams values as JSON lines. A disconnected client closes the generator.
    `touch` is called for each value. An AtelierError becomes the last line."""

    async def lines() -> AsyncIterator[bytes]:
        try:
            async with contextlib.aclosing(values) as open_values:
                async for value in open_values:
                    touch()
                    yield value.model_dump_json().encode() + b"\n"
        except AtelierError as error:
            yield error.problem.model_dump_json().encode() + b"\n"

    return StreamingResponse(lines(), media_type="application/x-ndjson")
