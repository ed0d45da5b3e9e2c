"""Messages of an agent: lines on its process's socket, and requests to the gateway."""

import asyncio
import contextlib
import hashlib
import json
from typing import Any

from pydantic import ValidationError

from engine.protocol.problems import AtelierError, RolloutError
from engine.protocol.records.conversations import IMAGE
from engine.reward.reward_hacking import signs
from engine.rollout.agents.processes import SentResult
from engine.rollout.conversations import canonical
from engine.rollout.gateway import anthropic
from engine.rollout.gateway.images import without_data
from engine.rollout.gateway.messages import first_invalid_field
from engine.rollout.gateway.requests import BadBody, ChatRequest, parse_request
from engine.rollout.gateway.responses import ResponsesRequest, chat_request, input_messages
from engine.rollout.gateway.structures import structure_of
from engine.rollout.rendering.chat import for_template
from engine.rollout.rendering.probes import Findings
from engine.rollout.rendering.syntaxes import Call, read_hermes, read_mistral
from engine.rollout.rollout import _message
from engine.runtime.child import read_answer
from engine.runtime.text import replace_surrogates

REFUSALS = (BadBody, AtelierError)
CALL = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": '{"q": [1, {}]}'}}
CHAT: dict[str, Any] = {
    "model": "policy", "temperature": 0.7, "n": 2, "stop": ["a", "b"], "seed": 5, "top_p": 0.9,
    "messages": [
        {"role": "system", "content": "Be brief.", "name": "boss"},
        {"role": "user", "content": [{"type": "text", "text": "Where?"}, {"type": "text"}]},
        {"role": "user", "content": [{"type": "image_url", "image_url": {
            "url": "data:image/png;base64,iVBORw0KGgo="}}]},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "<tool_call>{}</tool_call>"},
    ],
    "tools": [{"type": "function", "function": {"name": "find", "parameters": {"a": 1.5}}}],
}  # fmt: skip
RESPONSE: dict[str, Any] = {
    "instructions": "Be brief.", "max_output_tokens": 10, "tool_choice": "auto",
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "Where?"}]},
        {"role": "user", "content": [
            {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="}]},
        {"type": "function_call", "call_id": "c1", "name": "find", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "garden"},
    ],
    "tools": [{"type": "function", "name": "find", "parameters": {"type": "object"}}],
}  # fmt: skip
MESSAGES: dict[str, Any] = {
    "model": "policy", "max_tokens": 10, "system": [{"type": "text", "text": "Be brief."}],
    "messages": [
        {"role": "user", "content": "Where?"},
        {"role": "user", "content": [{"type": "image", "source": {
            "type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}]},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "x"},
            {"type": "tool_use", "id": "t1", "name": "find", "input": {"q": 1}},
        ]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "t1", "content": "garden", "is_error": True},
        ]},
    ],
    "tools": [{"name": "find", "input_schema": {"type": "object"}}],
    "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
}  # fmt: skip
FINDINGS = Findings(
    syntax="hermes", shows_tools=True, parallel=True, reasoning_field="reasoning_content",
    reasons=True, keeps_reasoning="always", switch="enable_thinking", text_arguments=False,
    wants_description=True, developer=False, variables=["enable_thinking"],
    images=True, tool_images=True, closing=[],
)  # fmt: skip


class Images:
    """Store of images that keeps none."""

    async def add(self, content: bytes) -> str:
        return hashlib.sha256(content).hexdigest()


class Sees:
    """Session of a model that reads images, as far as messages need it."""

    reads_images, images = True, Images()

    @property
    def chat(self) -> "Sees":
        return self

    async def described(self) -> Findings:
        return FINDINGS


SESSION: Any = Sees()
RESULT = {"id": 7, "ok": {"parts": {"rules": 1.0}, "metrics": {"x": 2}, "turns": [0.5],
                          "output": "said"}}  # fmt: skip
PROBLEM = {"id": 7, "error": {"code": "agent.raised", "message": "It raised.", "hint": ""}}
TEXT = 'Well <tool_call> {"name": "find", "arguments": {"x": [1]}} </tool_call> <context> judge'


def seeds() -> list[bytes]:
    values = [json.dumps(one).encode() for one in (CHAT, RESPONSE, MESSAGES, RESULT, PROBLEM)]
    return [*values, TEXT.encode()]


def execute(data: bytes) -> None:
    """Run every reader of agent data separately.

    Raise the last rejection if all request parsers reject.
    """
    _read_completion(data.decode(errors="surrogateescape"))
    _read_line(data)
    readers = (_read_chat, _read_response, _read_messages)
    refusals = [error for read in readers if (error := _rejection(read, data))]
    if len(refusals) == len(readers):
        raise refusals[-1]


def _read_completion(text: str) -> None:
    for read in (read_hermes, read_mistral):
        calls = [piece for piece in read(text) if isinstance(piece, Call)]
        assert all(call.name for call in calls)
        json.dumps(calls)


def _read_line(data: bytes) -> None:
    try:
        answer = read_answer(data)
    except ValueError:
        return
    try:
        sent = SentResult.model_validate(answer.value)
    except ValidationError as error:
        first_invalid_field(error)
    else:
        assert all(abs(one) <= 1e6 for one in (*sent.parts.values(), *sent.turns))


def _rejection(read: Any, data: bytes) -> Exception | None:
    try:
        read(data)
    except ValidationError as error:
        return BadBody(first_invalid_field(error))
    except REFUSALS as error:
        return error
    return None


def _read_chat(data: bytes) -> None:
    _process_messages(parse_request(ChatRequest, data, "chat"))


def _read_response(data: bytes) -> None:
    parsed = parse_request(ResponsesRequest, data, "responses")
    _process_messages(chat_request(parsed, input_messages(parsed)))


def _read_messages(data: bytes) -> None:
    parsed = parse_request(anthropic.MessagesRequest, data, "messages")
    _process_messages(anthropic.chat_request(parsed, "enable_thinking"))


def _process_messages(asked: ChatRequest) -> None:
    """Process the messages like the engine does after parsing."""
    taken = asyncio.run(without_data(SESSION, asked.messages))
    for message in taken:
        canonical(message)
        json.dumps(for_template(message, FINDINGS), allow_nan=False)
    messages = [_message(replace_surrogates(message)) for message in taken]
    assert all(one.content.count(IMAGE) == len(one.images) for one in messages if one.images)
    signs(messages)
    with contextlib.suppress(RolloutError):
        structure_of(asked, FINDINGS, {"<tool_call>": 7}, "<think>")
    for message in messages:
        message.model_dump_json()
    json.dumps(replace_surrogates(asked.tools), allow_nan=False).encode()
