"""Bodies of requests and answers: pydantic both ways."""

from typing import Any, TypeVar

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

T = TypeVar("T", bound=BaseModel)


async def body_of(request: Request, model: type[T]) -> T:
    return model.model_validate_json(await request.body())


def json_of(value: BaseModel) -> Response:
    return Response(value.model_dump_json(), media_type="application/json")


def json_list(values: Any) -> Response:
    body = "[" + ",".join(value.model_dump_json() for value in values) + "]"
    return Response(body, media_type="application/json")
