"""Responses API of OpenAI on top of chat completions: conversion of requests and responses.

A response has reasoning, a message and function calls, as far as the model wrote them. Images of a
request are given to models that read them. Other parts of the API (files, tools that a provider
executes) are refused with an explanation.
"""

import itertools
import json
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from engine.protocol.problems import RolloutError
from engine.rollout.gateway.completions import Tokens, usage_of
from engine.rollout.gateway.images import image_part
from engine.rollout.gateway.messages import FlatTool, Item, Name, form
from engine.rollout.gateway.requests import MOST_MESSAGES, MOST_TOOLS, ChatRequest
from engine.rollout.gateway.sampling import ModelCall
from engine.rollout.gateway.sessions import Choice
from engine.rollout.rendering.chat import not_text, reasoning_of

TEXT, IMAGE = {"input_text", "output_text", "text"}, "input_image"
Message = dict[str, Any]


class ResponsesRequest(BaseModel):
    """Request of the Responses API. `fields.py` says what happens to fields that are not here."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)

    model: Name = ""
    input: Annotated[
        Annotated[str, Tag("(text)")]
        | Annotated[list[Item], Field(fail_fast=True, max_length=MOST_MESSAGES), Tag("(parts)")],
        Discriminator(form),
    ]
    instructions: str | None = None
    previous_response_id: Name | None = None
    tools: Annotated[list[FlatTool], Field(fail_fast=True, max_length=MOST_TOOLS)] | None = None
    tool_choice: Literal["none", "auto", "required"] | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    temperature: float | None = Field(default=None, ge=0, le=5)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_logprobs: int | None = Field(default=None, ge=0, le=20)
    include: Annotated[list[Name], Field(max_length=100)] | None = None
    """`message.output_text.logprobs` is honoured; other values ask for parts of tools that run at
    a provider, or for encrypted reasoning, which is sent as text."""
    max_output_tokens: int | None = Field(default=None, ge=1, lt=2**31)
    text: dict[str, Any] | None = None
    reasoning: dict[str, Any] | None = None
    chat_template_kwargs: Annotated[dict[str, Any], Field(max_length=100)] | None = None
    structured_outputs: dict[str, Any] | None = None
    stream: bool | None = None

    @property
    def logprobs(self) -> bool:
        """Whether the answer has log-probs."""
        return bool(self.top_logprobs) or "message.output_text.logprobs" in (self.include or [])


def chat_request(request: ResponsesRequest, messages: list[Message]) -> ChatRequest:
    """Convert a request to a chat completion request. `messages` are those of the previous response
    and its own. Raises RolloutError for settings that are not supported."""
    first = [{"role": "system", "content": request.instructions}] if request.instructions else []
    return ChatRequest(
        model=request.model,
        messages=[*first, *messages],
        tools=[_tool(tool) for tool in request.tools or []] or None,
        tool_choice=_tool_choice(request.tool_choice),
        parallel_tool_calls=request.parallel_tool_calls,
        response_format=_response_format(request.text or {}),
        structured_outputs=request.structured_outputs,
        reasoning_effort=(request.reasoning or {}).get("effort"),
        temperature=request.temperature,
        top_p=request.top_p,
        max_completion_tokens=request.max_output_tokens,
        chat_template_kwargs=request.chat_template_kwargs,
        logprobs=request.logprobs,
        top_logprobs=request.top_logprobs,
    )


def _tool_choice(choice: Any) -> Any:
    match choice:
        case {"type": "function", "name": name}:
            return {"type": "function", "function": {"name": name}}
        case {"type": "allowed_tools", "mode": mode, "tools": tools}:
            return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}
    return choice


def _response_format(text: dict[str, Any]) -> dict[str, Any] | None:
    if text.get("verbosity", "medium") not in (None, "medium"):
        raise RolloutError.of(
            "gateway.refused_field",
            "text.verbosity: no chat template reads it; say it in a message.",
            "Leave the field out.",
            where="text.verbosity",
        )
    given = text.get("format")
    if isinstance(given, dict) and given.get("type") == "json_schema":
        schema = {name: value for name, value in given.items() if name != "type"}
        return {"type": "json_schema", "json_schema": schema}
    return given


def input_messages(request: ResponsesRequest) -> list[Message]:
    """Request items as chat messages; reasoning, text and function calls of one assistant turn are
    merged. Raises RolloutError for items that are neither messages nor function calls."""
    if isinstance(request.input, str):
        return [{"role": "user", "content": request.input}]
    messages: list[Message] = []
    for place, item in enumerate(request.input):
        message = _message(item, item.get("type", "message"), f"input.{place}")
        if message["role"] == "assistant" and messages and messages[-1]["role"] == "assistant":
            _join(messages[-1], message)
        else:
            messages.append(message)
    return messages


def response_of(
    request: ResponsesRequest, call: ModelCall, choice: Choice, tokens: Tokens
) -> dict[str, Any]:
    """Whole answer as a response object."""
    cut = choice.finish == "length"
    status = "incomplete" if cut else "completed"
    response = _empty(request, call)
    logprobs = tokens.logprobs(choice.sampled)["content"] if request.logprobs else []
    usage = usage_of([choice])
    return {
        **response,
        "status": status,
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "output": _output(choice.message, status, logprobs),
        "usage": {
            "input_tokens": usage["prompt_tokens"],
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": usage["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": choice.reasoning_tokens},
            "total_tokens": usage["total_tokens"],
        },
    }


def _empty(request: ResponsesRequest, call: ModelCall) -> dict[str, Any]:
    return {
        "id": f"resp_{uuid.uuid4().hex}",
        "object": "response",
        "created_at": int(time.time()),
        "status": "in_progress",
        "incomplete_details": None,
        "error": None,
        "model": call.name,
        "instructions": request.instructions,
        "previous_response_id": request.previous_response_id,
        "output": [],
        "parallel_tool_calls": request.parallel_tool_calls is not False,
        "tool_choice": request.tool_choice or "auto",
        "tools": request.tools or [],
        "temperature": request.temperature,
        "top_p": request.top_p,
        "max_output_tokens": request.max_output_tokens,
        "metadata": {},
        "text": request.text or {"format": {"type": "text"}},
        "usage": None,
    }


class ResponseStream:
    """Events of a streamed answer: items open when their first piece arrives; function calls are
    sent complete at the end."""

    def __init__(self, request: ResponsesRequest, call: ModelCall, tokens: Tokens) -> None:
        self._request, self._call, self._tokens = request, call, tokens
        self._number = itertools.count()
        self._items: list[dict[str, Any]] = []
        self._open: dict[str, Any] | None = None
        self._pieces: list[str] = []
        self.response = _empty(request, call)
        """The response; whole after the last event."""
        self.choice: Choice | None = None

    async def events(self) -> AsyncIterator[str]:
        """Yield the server-sent events of the answer."""
        yield self._event("response.created", response=self.response)
        yield self._event("response.in_progress", response=self.response)
        async for arriving in self._call.arrivals(0):
            for kind, text in (
                ("reasoning", arriving.delta.reasoning), ("message", arriving.delta.content),
            ):  # fmt: skip
                for event in self._piece(kind, text) if text else ():
                    yield event
            self.choice = arriving.choice or self.choice
        assert self.choice is not None
        final = response_of(self._request, self._call, self.choice, self._tokens)
        final |= {name: self.response[name] for name in ("id", "created_at")}
        self._fit(final["output"])
        for event in self._close(final["status"]):
            yield event
        for item in final["output"][len(self._items) :]:
            for event in self._whole(item):
                yield event
        self.response = final
        ended = "incomplete" if final["status"] == "incomplete" else "completed"
        yield self._event(f"response.{ended}", response=final)

    def _piece(self, kind: str, text: str) -> Iterator[str]:
        if self._open is None or self._open["type"] != kind:
            yield from self._close()
            item = _reasoning("") if kind == "reasoning" else _words("", "in_progress", [])
            self._open = item
            self._items.append(item)
            opened = {**item, "content": []}
            yield self._event("response.output_item.added", output_index=self._at, item=opened)
            yield self._event(
                "response.content_part.added", part=item["content"][0], **self._position()
            )
        self._pieces.append(text)
        extra: dict[str, Any] = {} if kind == "reasoning" else {"logprobs": []}
        yield self._event(f"{_text_event(kind)}.delta", delta=text, **extra, **self._position())

    def _close(self, status: str = "completed") -> Iterator[str]:
        if self._open is None:
            return
        item, text = self._open, "".join(self._pieces)
        part = item["content"][0]
        part["text"] = text
        extra = {} if item["type"] == "reasoning" else {"logprobs": part["logprobs"]}
        name = f"{_text_event(item['type'])}.done"
        yield self._event(name, text=text, **extra, **self._position())
        yield self._event("response.content_part.done", part=part, **self._position())
        if item["type"] == "message":
            item["status"] = status
        yield self._event("response.output_item.done", output_index=self._at, item=item)
        self._open, self._pieces = None, []

    def _whole(self, item: dict[str, Any]) -> Iterator[str]:
        self._items.append(item)
        if item["type"] != "function_call":  # an empty message: nothing of it has arrived
            yield self._event("response.output_item.added", output_index=self._at, item=item)
        else:
            opened = {**item, "status": "in_progress", "arguments": ""}
            yield self._event("response.output_item.added", output_index=self._at, item=opened)
            arguments, place = item["arguments"], {"output_index": self._at, "item_id": item["id"]}
            name = "response.function_call_arguments"
            yield self._event(f"{name}.delta", delta=arguments, **place)
            yield self._event(f"{name}.done", arguments=arguments, name=item["name"], **place)
        yield self._event("response.output_item.done", output_index=self._at, item=item)

    def _fit(self, output: list[dict[str, Any]]) -> None:
        """Give the final items the ids under which they were streamed."""
        for streamed, item in zip(self._items, output, strict=False):
            item["id"] = streamed["id"]
            if item["type"] == "message" and streamed["type"] == "message":
                streamed["content"][0]["logprobs"] = item["content"][0]["logprobs"]

    @property
    def _at(self) -> int:
        return len(self._items) - 1

    def _position(self) -> dict[str, Any]:
        assert self._open is not None
        return {"output_index": self._at, "item_id": self._open["id"], "content_index": 0}

    def _event(self, kind: str, **values: Any) -> str:
        body = {"type": kind, "sequence_number": next(self._number), **values}
        return f"event: {kind}\ndata: {json.dumps(body)}\n\n"


def _text_event(kind: str) -> str:
    return f"response.{'reasoning_text' if kind == 'reasoning' else 'output_text'}"


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    if tool.get("type") != "function":
        raise RolloutError.of(
            "gateway.not_a_function",
            f"Tools of type {tool.get('type')} run at the provider; only function tools are "
            "supported here.",
            "Define the tool as a function that the agent runs.",
        )
    names = ("name", "description", "parameters", "strict")
    kept = {name: tool[name] for name in names if tool.get(name)}
    return {"type": "function", "function": kept}


def _message(item: dict[str, Any], kind: str, at: str) -> Message:
    match kind:
        case "message":
            role = item.get("role", "user")
            content = item.get("content")
            read = _text(content) if role == "assistant" else _content(content, f"{at}.content")
            return {"role": role, "content": read}
        case "function_call":
            function = {"name": item.get("name"), "arguments": item.get("arguments")}
            call = {"id": item.get("call_id"), "type": "function", "function": function}
            return {"role": "assistant", "content": "", "tool_calls": [call]}
        case "function_call_output":
            output = _content(item.get("output"), f"{at}.output")
            return {"role": "tool", "tool_call_id": item.get("call_id"), "content": output}
        case "reasoning":
            parts = [*(item.get("content") or []), *(item.get("summary") or [])]
            words = "".join(str(part.get("text", "")) for part in parts if isinstance(part, dict))
            return {"role": "assistant", "content": "", "reasoning_content": words}
    raise RolloutError.of(
        "gateway.unknown_item",
        f"An item of type {kind} is not supported here.",
        "Use messages, function calls and their outputs.",
    )


def _content(content: Any, at: str) -> str | list[dict[str, Any]]:
    """Content as text, or as parts if it has images."""
    parts = content if isinstance(content, list) else []
    if not any(isinstance(part, dict) and part.get("type") == IMAGE for part in parts):
        return _text(content)
    return [
        image_part(part.get("image_url"), f"{at}.{number}")
        if isinstance(part, dict) and part.get("type") == IMAGE
        else {"type": "text", "text": _text([part])}
        for number, part in enumerate(parts)
    ]


def _text(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    parts = content if isinstance(content, list) else [content]
    if not all(isinstance(part, dict) and part.get("type") in TEXT for part in parts):
        raise not_text()
    return "".join(str(part.get("text", "")) for part in parts)


def _join(message: Message, more: Message) -> None:
    message["content"] += more["content"]
    for name in ("reasoning_content", "tool_calls"):
        if found := more.get(name):
            message[name] = message[name] + found if message.get(name) else found


def _output(message: Message, status: str, logprobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    calls = message.get("tool_calls") or []
    found: list[dict[str, Any]] = []
    if reasoning := reasoning_of(message):
        found.append(_reasoning(reasoning))
    if message["content"] or not (calls or found):
        found.append(_words(message["content"] or "", status, logprobs))
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


def _reasoning(text: str) -> dict[str, Any]:
    part = {"type": "reasoning_text", "text": text}
    name = f"rs_{uuid.uuid4().hex}"
    return {"type": "reasoning", "id": name, "summary": [], "content": [part]}


def _words(text: str, status: str, logprobs: list[dict[str, Any]]) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}
    return {
        "type": "message",
        "id": f"msg_{uuid.uuid4().hex}",
        "status": status,
        "role": "assistant",
        "content": [part],
    }
