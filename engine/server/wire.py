"""Bodies of requests and answers: pydantic both ways."""

from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from engine.protocol.problems import ConfigError

T = TypeVar("T", bound=BaseModel)


async def body_of(request: Request, model: type[T]) -> T:
    return model.model_validate_json(await request.body())


def project_of(request: Request) -> Path:
    """The folder that a request names. Raises ConfigError where it names none."""
    value = request.query_params.get("path")
    if not value:
        raise ConfigError.of("request.no_path", "The request names no project.")
    return Path(value).expanduser().resolve()


def json_of(value: BaseModel) -> Response:
    return Response(value.model_dump_json(), media_type="application/json")


def json_list(values: Any) -> Response:
    body = "[" + ",".join(value.model_dump_json() for value in values) + "]"
    return Response(body, media_type="application/json")
