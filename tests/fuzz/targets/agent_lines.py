"""Messages of an agent: lines on its process's socket, and requests to the gateway."""

import json
from typing import Any

from pydantic import ValidationError

from engine.protocol.problems import AtelierError
from engine.reward.reward_hacking import signs
from engine.rollout.agents.processes import SentResult
from engine.rollout.conversation import _normal
from engine.rollout.gateway.messages import first_invalid_field
from engine.rollout.gateway.requests import BadBody, ChatRequest, parse_request
from engine.rollout.gateway.responses import ResponsesRequest, chat_request
from engine.rollout.rendering.chat import for_template, read_completion
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
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "<tool_call>{}</tool_call>"},
    ],
    "tools": [{"type": "function", "function": {"name": "find", "parameters": {"a": 1.5}}}],
}  # fmt: skip
RESPONSE: dict[str, Any] = {
    "instructions": "Be brief.", "max_output_tokens": 10, "tool_choice": "auto",
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "Where?"}]},
        {"type": "function_call", "call_id": "c1", "name": "find", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "garden"},
    ],
    "tools": [{"type": "function", "name": "find", "parameters": {"type": "object"}}],
}  # fmt: skip
RESULT = {"id": 7, "ok": {"parts": {"rules": 1.0}, "metrics": {"x": 2}, "turns": [0.5],
                          "output": "said"}}  # fmt: skip
PROBLEM = {"id": 7, "error": {"code": "agent.raised", "message": "It raised.", "hint": ""}}
TEXT = 'Well <tool_call> {"name": "find", "arguments": {"x": [1]}} </tool_call> <context> judge'


def seeds() -> list[bytes]:
    values = [json.dumps(one).encode() for one in (CHAT, RESPONSE, RESULT, PROBLEM)]
    return [*values, TEXT.encode()]


def execute(data: bytes) -> None:
    """Run every reader of agent data separately.

    Raise the last rejection if both request parsers reject.
    """
    _read_completion(data.decode(errors="surrogateescape"))
    _read_line(data)
    refusals = [error for read in (_read_chat, _read_response) if (error := _rejection(read, data))]
    if len(refusals) == 2:
        raise refusals[-1]


def _read_completion(text: str) -> None:
    read = read_completion(text, True)
    json.dumps(read.tool_calls)


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
    _process_messages(parse_request(ChatRequest, data))


def _read_response(data: bytes) -> None:
    _process_messages(chat_request(parse_request(ResponsesRequest, data), []))


def _process_messages(asked: ChatRequest) -> None:
    """Process the messages like the engine does after parsing."""
    for message in asked.messages:
        _normal(message)
        json.dumps(for_template(message), allow_nan=False)
    messages = [_message(replace_surrogates(message)) for message in asked.messages]
    signs(messages)
    for message in messages:
        message.model_dump_json()
    json.dumps(replace_surrogates(asked.tools), allow_nan=False).encode()
