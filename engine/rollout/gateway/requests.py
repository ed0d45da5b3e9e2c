"""Requests and streamed chunks in OpenAI's format, limited to supported fields."""

import json
import time
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import JSONResponse

from engine.protocol.problems import RolloutError
from engine.rollout.gateway.messages import ChatMessage, Tool
from engine.runtime.text import parse_shallow

MODEL_NAME = "policy"
SYSTEM_ROLES = ("system", "developer")
MOST_NAME = 512
MOST_MESSAGES = 10_000
MOST_TOOLS = 1_000
MOST_STOPS = 64
MOST_VALUES = 50_000
"""Limit of JSON values in a request, since parsing it blocks the event loop."""
Stop = Annotated[str, Field(max_length=1_000)]
R = TypeVar("R", bound=BaseModel)


def values_in(body: bytes) -> int:
    """Upper bound of the number of values in JSON, counted from punctuation outside of strings;
    much faster than parsing."""
    plain = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    outside = b"".join(plain.split(b'"')[::2])
    return sum(map(outside.count, (b",", b"[", b"{")))


class BadBody(Exception):
    """Request body that cannot be parsed; its text is the reason."""


class ChatRequest(BaseModel):
    """Supported fields of a chat completion request; other fields are ignored."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)

    model: Annotated[str, Field(max_length=MOST_NAME)] = ""
    """Used where one key gives access to models of several names."""
    messages: Annotated[
        list[ChatMessage], Field(fail_fast=True, min_length=1, max_length=MOST_MESSAGES)
    ]
    tools: Annotated[list[Tool], Field(fail_fast=True, max_length=MOST_TOOLS)] | None = None
    tool_choice: Literal["none", "auto", "required"] | dict[str, Any] | None = None
    temperature: float | None = Field(default=None, ge=0, le=5)
    top_p: float | None = Field(default=None, gt=0, le=1)
    max_tokens: int | None = Field(default=None, ge=1, lt=2**31)
    max_completion_tokens: int | None = Field(default=None, ge=1, lt=2**31)
    n: int = Field(default=1, ge=1, le=64)
    stop: Stop | Annotated[list[Stop], Field(max_length=MOST_STOPS)] | None = None
    seed: int | None = Field(default=None, ge=-(2**63), lt=2**63)
    logprobs: bool = False
    top_logprobs: int | None = Field(default=None, ge=0, le=20)
    stream: bool = False

    @property
    def stops(self) -> list[str]:
        stops = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return [stop for stop in stops if stop]


def parse_request(model: type[R], body: bytes) -> R:
    """Parse a request body. Raises ValidationError with the invalid field, and BadBody if the body
    is not JSON, too large or nested too deeply, or contains a number that is not finite."""
    if values_in(body) > MOST_VALUES:
        raise BadBody(f"it has more than {MOST_VALUES:,} values")
    try:
        value = parse_shallow(body)
    except ValueError as error:
        raise BadBody(str(error)) from error
    return model.model_validate(value)


def with_system(request: ChatRequest, system: str | None) -> ChatRequest:
    """Replace the first system message of a request by `system`, or insert it at the front if the
    request has none. None changes nothing."""
    if system is None:
        return request
    replacement = {"role": "system", "content": system}
    roles = [message.get("role") for message in request.messages]
    place = next((n for n, role in enumerate(roles) if role in SYSTEM_ROLES), None)
    messages = list(request.messages)
    messages[slice(0, 0) if place is None else slice(place, place + 1)] = [replacement]
    return request.model_copy(update={"messages": messages})


def chunk(
    model: str,
    name: str,
    index: int,
    delta: dict[str, Any],
    finish: str | None = None,
    logprobs: dict[str, Any] | None = None,
) -> str:
    """Server-sent event of a streamed completion with id `name`: new content `delta` of choice
    `index`. `finish` is the finish_reason, None before the end."""
    body = {
        "id": name,
        "object": "chat.completion.chunk",
        "created": int(time.time()),
        "model": model,
        "choices": [
            {"index": index, "delta": delta, "finish_reason": finish, "logprobs": logprobs}
        ],
    }
    return f"data: {json.dumps(body)}\n\n"


def error_answer(status: int, code: str, message: str) -> JSONResponse:
    return JSONResponse({"error": {"message": message, "type": code, "code": code}}, status)


def too_many_turns(most: int) -> RolloutError:
    return RolloutError.of(
        "gateway.too_many_turns",
        f"This rollout has reached its limit of {most} model calls.",
        "Raise agent.max_turns, or end the agent's loop earlier.",
    )
