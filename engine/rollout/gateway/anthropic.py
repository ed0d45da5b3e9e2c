"""Messages API of Anthropic on top of chat completions: requests in, answers and streams out.

Text, images, tool use and thinking are supported; documents and tools that run at Anthropic are
refused with an explanation. Pure functions, but for the stream.
"""

import json
import uuid
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import JSONResponse

from engine.protocol.problems import RolloutError
from engine.rollout.gateway.completions import usage_of
from engine.rollout.gateway.images import image_part
from engine.rollout.gateway.requests import (
    MOST_MESSAGES,
    MOST_NAME,
    MOST_STOPS,
    MOST_TOOLS,
    ChatRequest,
    Stop,
)
from engine.rollout.gateway.sampling import ModelCall
from engine.rollout.gateway.sessions import Choice
from engine.rollout.rendering.chat import reasoning_of

Message = dict[str, Any]
Block = dict[str, Any]
STOP_REASONS = {
    "stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use",
    "content_filter": "refusal",
}  # fmt: skip
"""Anthropic's stop_reason by OpenAI's finish_reason; a provider may send others."""
ERRORS = {
    400: "invalid_request_error", 401: "authentication_error", 403: "permission_error",
    404: "not_found_error", 413: "request_too_large", 429: "rate_limit_error", 500: "api_error",
}  # fmt: skip
"""Anthropic's error type by status."""
MOST_BLOCKS = 10_000
SIGNATURE = "YXRlbGllcg=="
"""Signature of thinking blocks: clients leave out those without one when they send a conversation
back, and then the template cannot show the reasoning."""


class Turn(BaseModel):
    """Message of a request: text, or a list of content blocks."""

    role: Literal["user", "assistant", "system"]
    content: str | Annotated[list[dict[str, Any]], Field(max_length=MOST_BLOCKS)]


class Thinking(BaseModel):
    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: int | None = Field(default=None, ge=1, lt=2**31)
    """Maximum tokens of reasoning, if the reasoning is enabled."""

    @property
    def budget(self) -> int | None:
        """Budget in tokens; None for no limit."""
        return self.budget_tokens if self.type == "enabled" else None


class MessagesRequest(BaseModel):
    """Request of the Messages API. `fields.py` says what happens to fields that are not here."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)

    model: Annotated[str, Field(max_length=MOST_NAME)] = ""
    max_tokens: int | None = Field(default=None, ge=1, lt=2**31)
    messages: Annotated[list[Turn], Field(min_length=1, max_length=MOST_MESSAGES)]
    system: str | Annotated[list[dict[str, Any]], Field(max_length=MOST_BLOCKS)] | None = None
    stop_sequences: Annotated[list[Stop], Field(max_length=MOST_STOPS)] | None = None
    stream: bool | None = None
    temperature: float | None = Field(default=None, ge=0, le=1)
    top_p: float | None = Field(default=None, gt=0, le=1)
    thinking: Thinking | None = None
    tool_choice: dict[str, Any] | None = None
    tools: Annotated[list[dict[str, Any]], Field(max_length=MOST_TOOLS)] | None = None
    output_config: dict[str, Any] | None = None
    output_format: dict[str, Any] | None = None
    chat_template_kwargs: dict[str, Any] | None = None


def chat_request(request: MessagesRequest, switch: str) -> ChatRequest:
    """Convert a request to a chat completion request. `switch` is the name of the template's
    variable that turns the reasoning on and off. Raises RolloutError, naming the field, for content
    that the policy cannot read."""
    messages: list[Message] = []
    if request.system:
        messages.append({"role": "system", "content": _text(request.system, "system")})
    for place, turn in enumerate(request.messages):
        messages += _messages(turn, f"messages.{place}")
    choice = request.tool_choice or {}
    parallel = False if choice.get("disable_parallel_tool_use") else None
    variables = dict(request.chat_template_kwargs or {})
    if request.thinking and switch:
        variables[switch] = request.thinking.type != "disabled"
    return ChatRequest(
        model=request.model,
        messages=messages,
        tools=[_tool(tool, place) for place, tool in enumerate(request.tools or [])] or None,
        tool_choice=_choice(choice),
        parallel_tool_calls=parallel,
        response_format=_format(request),
        thinking_budget=request.thinking.budget if request.thinking else None,
        reasoning_effort=(request.output_config or {}).get("effort"),
        temperature=request.temperature,
        top_p=request.top_p,
        max_completion_tokens=request.max_tokens,
        stop=request.stop_sequences,
        chat_template_kwargs=variables or None,
    )


def refuse_prefill(request: MessagesRequest) -> None:
    """Raise RolloutError if the answer should continue an assistant message that the agent wrote:
    a chat template begins each answer anew."""
    place = len(request.messages) - 1
    if request.messages[place].role == "assistant":
        raise _refused(
            f"messages.{place}",
            "the last message is the assistant's, and the policy cannot continue it; end with a "
            "user message",
        )


def _format(request: MessagesRequest) -> dict[str, Any] | None:
    given = request.output_format or (request.output_config or {}).get("format")
    if given is None:
        return None
    if given.get("type") != "json_schema" or not isinstance(given.get("schema"), dict):
        raise _refused("output_config.format", "it needs the type json_schema and a schema")
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": given["schema"]}}


def _choice(choice: dict[str, Any]) -> Any:
    match choice.get("type"):
        case None | "auto":
            return None
        case "any":
            return "required"
        case "none":
            return "none"
        case "tool":
            return {"type": "function", "function": {"name": choice.get("name")}}
    raise _refused("tool_choice", "its type is none of auto, any, tool, none")


def _tool(tool: dict[str, Any], place: int) -> dict[str, Any]:
    if tool.get("type", "custom") != "custom" or not isinstance(tool.get("name"), str):
        raise _refused(
            f"tools.{place}", "only tools that the agent runs are supported, with name and schema"
        )
    function = {"name": tool["name"], "parameters": tool.get("input_schema") or {"type": "object"}}
    for name in ("description", "strict"):
        if tool.get(name):
            function[name] = tool[name]
    return {"type": "function", "function": function}


def _messages(turn: Turn, where: str) -> list[Message]:
    """Chat messages of a turn: tool results become messages of their own, before its text."""
    given = turn.content
    blocks = [{"type": "text", "text": given}] if isinstance(given, str) else given
    if turn.role == "assistant":
        return [_assistant(blocks, where)]
    found: list[Message] = []
    own: list[tuple[Block, str]] = []
    for place, block in enumerate(blocks):
        at = f"{where}.content.{place}"
        if block.get("type") == "tool_result":
            content = _content(block.get("content") or "", f"{at}.content")
            if block.get("is_error"):
                content = _as_error(content)
            name = block.get("tool_use_id")
            found.append({"role": "tool", "tool_call_id": name, "content": content})
        else:
            own.append((block, at))
    if own or not found:
        found.append({"role": turn.role, "content": _joined_parts(own)})
    return found


def _assistant(blocks: list[Block], where: str) -> Message:
    message: Message = {"role": "assistant", "content": ""}
    calls: list[dict[str, Any]] = []
    for place, block in enumerate(blocks):
        match block.get("type"):
            case "thinking":
                before = message.get("reasoning_content", "")
                message["reasoning_content"] = before + str(block.get("thinking") or "")
            case "redacted_thinking":
                continue
            case "tool_use":
                arguments = json.dumps(block.get("input") or {}, ensure_ascii=False)
                function = {"name": str(block.get("name")), "arguments": arguments}
                calls.append({"id": block.get("id"), "type": "function", "function": function})
            case _:
                message["content"] += _block_text(block, f"{where}.content.{place}")
    return {**message, "tool_calls": calls} if calls else message


def _content(content: Any, where: str) -> str | list[dict[str, Any]]:
    """Content as text, or as parts of a chat message if it has images."""
    if not isinstance(content, list):
        return _text(content, where)
    return _joined_parts([(block, f"{where}.{n}") for n, block in enumerate(content)])


def _joined_parts(blocks: list[tuple[Block, str]]) -> str | list[dict[str, Any]]:
    """Blocks, each with its place in the request, as text or, if they have images, as parts; text
    blocks behind one another are joined by line breaks."""
    if not any(_is_image(block) for block, _ in blocks):
        return "\n".join(_block_text(block, at) for block, at in blocks)
    parts: list[dict[str, Any]] = []
    for block, at in blocks:
        if _is_image(block):
            parts.append(image_part(_data_url(block, at), at))
        elif parts and parts[-1]["type"] == "text":
            parts[-1]["text"] += "\n" + _block_text(block, at)
        else:
            parts.append({"type": "text", "text": _block_text(block, at)})
    return parts


def _is_image(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") == "image"


def _data_url(block: Block, where: str) -> str:
    """Image of a block as a data URL, or the URL that it names."""
    match block.get("source"):
        case {"type": "base64", "data": str(data)}:
            return f"data:{block['source'].get('media_type', '')};base64,{data}"
        case {"type": "url", "url": str(url)}:
            return url
    raise _refused(f"{where}.source", "the image itself must be sent, as base64")


def _as_error(content: str | list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    if isinstance(content, str):
        return f"Error: {content}"
    return [{"type": "text", "text": "Error: "}, *content]


def _text(content: Any, where: str) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise _refused(where, "it is neither text nor a list of blocks")
    return "\n".join(_block_text(block, f"{where}.{n}") for n, block in enumerate(content))


def _block_text(block: Any, where: str) -> str:
    if not isinstance(block, dict) or block.get("type") != "text":
        kind = block.get("type") if isinstance(block, dict) else type(block).__name__
        raise _refused(where, f"the policy reads text, not a block of type {kind}")
    return str(block.get("text", ""))


def _refused(field: str, why: str) -> RolloutError:
    return RolloutError.of("gateway.refused_field", f"{field}: {why}.", where=field)


def message_body(call: ModelCall, choice: Choice) -> dict[str, Any]:
    """Whole answer to a request."""
    return {
        **_head(call),
        "content": _blocks(choice.message),
        **_stop(choice),
        "usage": _usage([choice]),
    }


def _head(call: ModelCall) -> dict[str, Any]:
    return {
        "id": f"msg_{uuid.uuid4().hex}",
        "type": "message",
        "role": "assistant",
        "model": call.name,
    }


def _stop(choice: Choice) -> dict[str, Any]:
    reason = "stop_sequence" if choice.stopped else STOP_REASONS.get(choice.finish, "end_turn")
    return {"stop_reason": reason, "stop_sequence": choice.stopped}


def _usage(choices: list[Choice]) -> dict[str, Any]:
    counts = usage_of(choices)
    return {
        "input_tokens": counts["prompt_tokens"],
        "output_tokens": counts["completion_tokens"],
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
    }


def _blocks(message: Message) -> list[Block]:
    found: list[Block] = []
    if reasoning := reasoning_of(message):
        found.append({"type": "thinking", "thinking": reasoning, "signature": SIGNATURE})
    if message.get("content"):
        found.append({"type": "text", "text": message["content"]})
    return found + _tool_uses(message)


def _tool_uses(message: Message) -> list[Block]:
    found = []
    for call in message.get("tool_calls") or []:
        try:
            given = json.loads(call["function"]["arguments"])
        except ValueError:
            given = None
        if not isinstance(given, dict):  # the model wrote no object: the agent sees what it wrote
            given = {"arguments": call["function"]["arguments"]}
        name = call["function"]["name"]
        found.append({"type": "tool_use", "id": call["id"], "name": name, "input": given})
    return found


async def message_events(call: ModelCall) -> AsyncIterator[str]:
    """Yield the answer to a streamed request as server-sent events. Tool uses are sent complete at
    the end."""
    usage = {**_usage([]), "input_tokens": call.prompt_tokens}
    start = {**_head(call), "content": [], "stop_reason": None, "stop_sequence": None}
    yield _event("message_start", message={**start, "usage": usage})
    index, kind = -1, ""
    final: Choice | None = None
    async for arriving in call.arrivals(0):
        pieces = (("thinking", arriving.delta.reasoning), ("text", arriving.delta.content))
        for name, text in pieces:
            if not text:
                continue
            if kind != name:
                for event in _closing(index, kind):
                    yield event
                index, kind = index + 1, name
                empty = {"signature": ""} if name == "thinking" else {}
                block = {"type": name, name: "", **empty}
                yield _event("content_block_start", index=index, content_block=block)
            delta = {"type": f"{name}_delta", name: text}
            yield _event("content_block_delta", index=index, delta=delta)
        final = arriving.choice or final
    for event in _closing(index, kind):
        yield event
    assert final is not None
    for block in _tool_uses(final.message):
        index += 1
        for event in _tool_events(index, block):
            yield event
    yield _event("message_delta", delta=_stop(final), usage=_usage([final]))
    yield _event("message_stop")


def _closing(index: int, kind: str) -> list[str]:
    if not kind:
        return []
    signature = {"type": "signature_delta", "signature": SIGNATURE}
    signed = _event("content_block_delta", index=index, delta=signature)
    closed = _event("content_block_stop", index=index)
    return [signed, closed] if kind == "thinking" else [closed]


def _tool_events(index: int, block: Block) -> list[str]:
    text = json.dumps(block["input"], ensure_ascii=False)
    delta = {"type": "input_json_delta", "partial_json": text}
    return [
        _event("content_block_start", index=index, content_block={**block, "input": {}}),
        _event("content_block_delta", index=index, delta=delta),
        _event("content_block_stop", index=index),
    ]


def _event(kind: str, **values: Any) -> str:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **values})}\n\n"


def error_event(message: str) -> str:
    """Error in the middle of a stream."""
    return _event("error", error={"type": "api_error", "message": message})


def error_body(status: int, message: str) -> JSONResponse:
    """Error in Anthropic's form."""
    return JSONResponse(error_value(status, message), status)


def error_value(status: int, message: str) -> dict[str, Any]:
    """Body of an error in Anthropic's form, before it is written as JSON."""
    kind = ERRORS.get(status, "api_error")
    return {"type": "error", "error": {"type": kind, "message": message}}
