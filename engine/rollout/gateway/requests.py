"""Chat completion requests in OpenAI's format."""

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import JSONResponse

from engine.protocol.problems import RolloutError
from engine.rollout.gateway.fields import Dialect, check_fields
from engine.rollout.gateway.messages import ChatMessage, Tool
from engine.rollout.rendering.probes import Findings
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


class StreamOptions(BaseModel):
    include_usage: bool = False
    include_obfuscation: bool = False
    """Padding against readers of network traffic: without effect on loopback."""


class ChatRequest(BaseModel):
    """Chat completion request. `fields.py` says what happens to fields that are not here."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)

    model: Annotated[str, Field(max_length=MOST_NAME)] = ""
    """Used where one key gives access to models of several names."""
    messages: Annotated[
        list[ChatMessage], Field(fail_fast=True, min_length=1, max_length=MOST_MESSAGES)
    ]
    tools: Annotated[list[Tool], Field(fail_fast=True, max_length=MOST_TOOLS)] | None = None
    tool_choice: Literal["none", "auto", "required"] | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    response_format: dict[str, Any] | None = None
    structured_outputs: dict[str, Any] | None = None
    """Structure of the answer in vLLM's form: one of json, json_object, regex, choice, grammar."""
    temperature: float | None = Field(default=None, ge=0, le=5)
    top_p: float | None = Field(default=None, gt=0, le=1)
    max_tokens: int | None = Field(default=None, ge=1, lt=2**31)
    max_completion_tokens: int | None = Field(default=None, ge=1, lt=2**31)
    n: int = Field(default=1, ge=1, le=64)
    stop: Stop | Annotated[list[Stop], Field(max_length=MOST_STOPS)] | None = None
    seed: int | None = Field(default=None, ge=-(2**63), lt=2**63)
    logprobs: bool | None = None
    top_logprobs: int | None = Field(default=None, ge=0, le=20)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    reasoning_effort: str | None = Field(default=None, max_length=MOST_NAME)
    """Variable of this name in the chat template; `none` turns the reasoning off."""
    chat_template_kwargs: Annotated[dict[str, Any], Field(max_length=100)] | None = None
    """Further values that the chat template reads."""
    thinking_budget: int | None = Field(default=None, ge=1)
    """Maximum tokens of reasoning; set by the Messages API, no field of chat completions."""
    return_tokens_as_token_ids: bool | None = None
    """Log-probs name tokens `token_id:7`, as vLLM does."""

    @property
    def stops(self) -> list[str]:
        stops = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return [stop for stop in stops if stop]

    def variables(self, findings: Findings) -> dict[str, Any]:
        """Values for the chat template that the request wants. Raises RolloutError if the template
        has no such effort of reasoning."""
        values = dict(self.chat_template_kwargs or {})
        effort = self.reasoning_effort
        if effort is None:
            return values
        if "reasoning_effort" in findings.variables:
            return {**values, "reasoning_effort": effort}
        if effort == "none" and findings.switch:
            return {**values, findings.switch: False}
        raise RolloutError.of(
            "gateway.refused_field",
            "reasoning_effort (reasoning.effort, output_config.effort): the model's chat template "
            "does not read it.",
            "Leave the field out; model.thinking turns the reasoning on or off.",
            where="reasoning_effort",
        )


def parse_request(model: type[R], body: bytes, dialect: Dialect) -> R:
    """Parse a request body. Raises ValidationError with the invalid field, RolloutError for a field
    that is refused or unknown, and BadBody if the body is not a JSON object, too large or nested
    too deeply, or contains a number that is not finite."""
    if values_in(body) > MOST_VALUES:
        raise BadBody(f"it has more than {MOST_VALUES:,} values")
    try:
        value = parse_shallow(body)
    except ValueError as error:
        raise BadBody(str(error)) from error
    if isinstance(value, dict):
        check_fields(dialect, value)
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


def error_answer(status: int, code: str, message: str) -> JSONResponse:
    return JSONResponse({"error": {"message": message, "type": code, "code": code}}, status)


def too_many_turns(most: int) -> RolloutError:
    return RolloutError.of(
        "gateway.too_many_turns",
        f"This rollout has reached its limit of {most} model calls.",
        "Raise agent.max_turns, or end the agent's loop earlier.",
    )
