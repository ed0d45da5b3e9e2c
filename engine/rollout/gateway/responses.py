"""Responses API of OpenAI on top of chat completions: conversion of requests and responses.

A response has one message, function calls, or both. Other parts of the API (files, images, tools
that a provider executes) are refused with an explanation. Pure functions.
"""

import json
import time
import uuid
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from engine.protocol.problems import RolloutError
from engine.rollout.gateway.messages import FlatTool, Item, Name, form
from engine.rollout.gateway.requests import MOST_MESSAGES, MOST_TOOLS, ChatRequest

TEXT = {"input_text", "output_text", "text"}
Message = dict[str, Any]


class ResponsesRequest(BaseModel):
    """Supported fields of a Responses request; other fields are ignored."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)

    input: Annotated[
        Annotated[str, Tag("(text)")]
        | Annotated[list[Item], Field(fail_fast=True, max_length=MOST_MESSAGES), Tag("(parts)")],
        Discriminator(form),
    ]
    instructions: str | None = None
    previous_response_id: Name | None = None
    tools: Annotated[list[FlatTool], Field(fail_fast=True, max_length=MOST_TOOLS)] | None = None
    tool_choice: Literal["none", "auto", "required"] | dict[str, Any] | None = None
    temperature: float | None = Field(default=None, ge=0, le=5)
    top_p: float | None = Field(default=None, gt=0, le=1)
    max_output_tokens: int | None = Field(default=None, ge=1, lt=2**31)
    stream: bool = False


def chat_request(request: ResponsesRequest, before: list[Message]) -> ChatRequest:
    """Convert a request to a chat completion request. `before` are the messages of the previous
    response. Raises RolloutError for items that are neither text nor function calls."""
    first = [{"role": "system", "content": request.instructions}] if request.instructions else []
    choice = request.tool_choice
    if isinstance(choice, dict) and "name" in choice:
        choice = {"type": "function", "function": {"name": choice["name"]}}
    return ChatRequest(
        messages=[*first, *before, *input_messages(request)],
        tools=[_tool(tool) for tool in request.tools or []] or None,
        tool_choice=choice,
        temperature=request.temperature,
        top_p=request.top_p,
        max_completion_tokens=request.max_output_tokens,
    )


def input_messages(request: ResponsesRequest) -> list[Message]:
    """Request items as chat messages; text and function calls of one assistant turn are merged."""
    if isinstance(request.input, str):
        return [{"role": "user", "content": request.input}]
    messages: list[Message] = []
    for item in request.input:
        kind = item.get("type", "message")
        if kind == "reasoning":
            continue
        message = _message(item, kind)
        if message["role"] == "assistant" and messages and messages[-1]["role"] == "assistant":
            _join(messages[-1], message)
        else:
            messages.append(message)
    return messages


def response_of(request: ResponsesRequest, completion: dict[str, Any]) -> dict[str, Any]:
    """Convert a chat completion with one choice into a response object of the Responses API."""
    choice = completion["choices"][0]
    cut = choice["finish_reason"] == "length"
    usage = completion["usage"]
    return {
        "id": f"resp_{uuid.uuid4().hex}",
        "object": "response",
        "created_at": int(time.time()),
        "status": "incomplete" if cut else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "error": None,
        "model": completion["model"],
        "instructions": request.instructions,
        "previous_response_id": request.previous_response_id,
        "output": _output(choice["message"], "incomplete" if cut else "completed"),
        "parallel_tool_calls": True,
        "tool_choice": request.tool_choice or "auto",
        "tools": request.tools or [],
        "temperature": request.temperature,
        "top_p": request.top_p,
        "max_output_tokens": request.max_output_tokens,
        "metadata": {},
        "text": {"format": {"type": "text"}},
        "usage": {
            "input_tokens": usage["prompt_tokens"],
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": usage["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage["total_tokens"],
        },
    }


def events_of(response: dict[str, Any]) -> Iterator[str]:
    """Server-sent events of a complete response, in the order of a stream; the text or arguments of
    each item are sent as one piece."""
    number = iter(range(1_000_000))

    def say(kind: str, **values: Any) -> str:
        body = {"type": kind, "sequence_number": next(number), **values}
        return f"event: {kind}\ndata: {json.dumps(body)}\n\n"

    initial = {**response, "status": "in_progress", "output": [], "usage": None}
    yield say("response.created", response=initial)
    yield say("response.in_progress", response=initial)
    for index, item in enumerate(response["output"]):
        position = {"output_index": index, "item_id": item["id"]}
        empty: dict[str, Any] = {"content": []} if item["type"] == "message" else {"arguments": ""}
        opened = {**item, "status": "in_progress", **empty}
        yield say("response.output_item.added", output_index=index, item=opened)
        if item["type"] == "message":
            part = item["content"][0]
            position["content_index"] = 0
            yield say("response.content_part.added", part={**part, "text": ""}, **position)
            yield say("response.output_text.delta", delta=part["text"], logprobs=[], **position)
            yield say("response.output_text.done", text=part["text"], logprobs=[], **position)
            yield say("response.content_part.done", part=part, **position)
        else:
            arguments = item["arguments"]
            yield say("response.function_call_arguments.delta", delta=arguments, **position)
            yield say("response.function_call_arguments.done", arguments=arguments, **position)
        yield say("response.output_item.done", output_index=index, item=item)
    ended = "response.incomplete" if response["status"] == "incomplete" else "response.completed"
    yield say(ended, response=response)


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    if tool.get("type") != "function":
        raise RolloutError.of(
            "gateway.not_a_function",
            f"Tools of type {tool.get('type')} run at the provider; only function tools are "
            "supported here.",
            "Define the tool as a function that the agent runs.",
        )
    kept = {name: tool[name] for name in ("name", "description", "parameters") if tool.get(name)}
    return {"type": "function", "function": kept}


def _message(item: dict[str, Any], kind: str) -> Message:
    match kind:
        case "message":
            return {"role": item.get("role", "user"), "content": _text(item.get("content"))}
        case "function_call":
            function = {"name": item.get("name"), "arguments": item.get("arguments")}
            call = {"id": item.get("call_id"), "type": "function", "function": function}
            return {"role": "assistant", "content": "", "tool_calls": [call]}
        case "function_call_output":
            output = _text(item.get("output"))
            return {"role": "tool", "tool_call_id": item.get("call_id"), "content": output}
    raise RolloutError.of(
        "gateway.unknown_item",
        f"An item of type {kind} is not supported here.",
        "Use messages, function calls and their outputs.",
    )


def _text(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    parts = content if isinstance(content, list) else [content]
    if not all(isinstance(part, dict) and part.get("type") in TEXT for part in parts):
        raise RolloutError.of(
            "gateway.not_text",
            "The model reads text only; a message contains an image, audio or file.",
        )
    return "".join(str(part.get("text", "")) for part in parts)


def _join(message: Message, more: Message) -> None:
    message["content"] += more["content"]
    if calls := more.get("tool_calls"):
        message["tool_calls"] = [*message.get("tool_calls", []), *calls]


def _output(message: Message, status: str) -> list[dict[str, Any]]:
    calls = message.get("tool_calls") or []
    found: list[dict[str, Any]] = []
    if message["content"] or not calls:
        part: dict[str, Any] = {
            "type": "output_text",
            "text": message["content"] or "",
            "annotations": [],
        }
        found.append(
            {
                "type": "message",
                "id": f"msg_{uuid.uuid4().hex}",
                "status": status,
                "role": "assistant",
                "content": [part],
            }
        )
    for call in calls:
        found.append(
            {
                "type": "function_call",
                "id": f"fc_{uuid.uuid4().hex}",
                "call_id": call["id"],
                "name": call["function"]["name"],
                "arguments": call["function"]["arguments"],
                "status": "completed",
            }
        )
    return found
