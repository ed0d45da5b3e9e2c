"""Invalid agent requests: each is rejected with 400 and the name of the field, and the engine
continues."""

import json
import time
from typing import Any

import httpx
import pytest

from engine.rollout.rendering.syntaxes import Call, read_hermes
from engine.runtime.text import MOST_DEPTH
from tests.engine.rollout.conftest import GatewayHarness


def nested_list(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


USER = {"role": "user", "content": "Hello"}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
ATTACKS: list[tuple[str, dict[str, Any]]] = [
    ("messages.0.name", {"messages": [{**USER, "name": 5}]}),
    ("messages.0.tool_call_id", {"messages": [{**USER, "tool_call_id": 5}]}),
    ("messages.0.role", {"messages": [{**USER, "role": 5}]}),
    ("messages.0.role", {"messages": [{**USER, "role": "emperor"}]}),
    ("messages.0.content", {"messages": [{**USER, "content": 5}]}),
    ("messages.0.content", {"messages": [{**USER, "content": {"a": 1}}]}),
    ("messages.0.content.0.text", {"messages": [
        {**USER, "content": [{"type": "text", "text": 5}]}]}),
    ("messages.1.tool_calls.0.function.name", {"messages": [
        USER, {"role": "assistant", "tool_calls": [{"id": "x", "function": {"name": 5}}]}]}),
    ("messages.1.tool_calls", {"messages": [USER, {"role": "assistant", "tool_calls": "f()"}]}),
    ("messages.1", {"messages": [USER, "hello"]}),
    ("messages", {"messages": [USER] * 10_001}),
    ("tools.0.function", {"tools": [{"type": "function"}]}),
    ("tools.0.function.parameters", {"tools": [{"function": {"name": "f", "parameters": 5}}]}),
    ("body: it is nested", {"tools": [
        {"function": {"name": "f", "parameters": {"x": nested_list(MOST_DEPTH)}}}]}),
    ("body: it is nested", {"messages": [{**USER, "extra": nested_list(20_000)}]}),
    ("body: NaN", {"temperature": float("nan")}),
    ("body: Infinity", {"messages": [{**USER, "score": float("inf")}]}),
    ("temperature", {"temperature": -1}),
    ("top_p", {"top_p": 1.7e308}),
    ("max_tokens", {"max_tokens": 10**30}),
    ("seed", {"seed": 2**70}),
    ("n:", {"n": 65}),
    ("stop", {"stop": ["x"] * 65}),
    ("stop", {"stop": "x" * 1001}),
    ("model", {"model": "m" * 1000}),
    ("tool_choice", {"tool_choice": 5}),
]  # fmt: skip


def encode(value: Any) -> bytes:
    """JSON of any depth; the standard encoder has a limit of its own."""
    try:
        return json.dumps(value).encode()
    except RecursionError:
        deep = value["messages"][0].pop("extra")
        count = 0
        while deep:
            deep, count = deep[0], count + 1
        with_marker = json.dumps(value | {"messages": [{**USER, "extra": "@"}]})
        return with_marker.replace('"@"', "[" * count + "]" * count).encode()


def post(harness: GatewayHarness, path: str, body: bytes) -> httpx.Response:
    headers = {"Authorization": f"Bearer {harness.key}", "content-type": "application/json"}
    url = str(harness.client.base_url).rstrip("/") + path
    return httpx.post(url, content=body, headers=headers, timeout=30, verify=False)


@pytest.mark.parametrize(("field", "changes"), ATTACKS)
def test_invalid_chat_field_is_named(
    harness: GatewayHarness, field: str, changes: dict[str, Any]
) -> None:
    answer = post(harness, "/chat/completions", encode({"messages": [USER], **changes}))
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert error["message"].startswith(field), error
    assert error["type"] == error["code"] == "gateway.bad_request"
    assert harness.session.failure is None
    assert harness.ask().choices[0].message.content == "In the garden."


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("input.0.role", {"input": [{"role": 5, "content": "x"}]}),
        ("input.0.call_id", {"input": [{"type": "function_call", "call_id": 5, "name": "f"}]}),
        ("input.0", {"input": ["x"]}),
        ("input", {"input": 5}),
        ("tools.0.name", {"input": "x", "tools": [{"type": "function", "name": 5}]}),
        ("previous_response_id", {"input": "x", "previous_response_id": ["x"]}),
        ("max_output_tokens", {"input": "x", "max_output_tokens": 2**40}),
    ],
)
def test_invalid_response_field_is_named(
    harness: GatewayHarness, field: str, changes: dict[str, Any]
) -> None:
    answer = post(harness, "/responses", json.dumps(changes).encode())
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["message"].startswith(field), answer.text


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff\xfe", b'{"messages": "\xff"}', b"null"])
def test_non_object_body_is_rejected(harness: GatewayHarness, body: bytes) -> None:
    answer = post(harness, "/chat/completions", body)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "gateway.bad_request"


def test_non_json_arguments_and_unknown_fields_of_messages_are_accepted(
    harness: GatewayHarness,
) -> None:
    deep = "[" * 110 + "]" * 110
    call = {**CALL, "function": {"name": "f", "arguments": deep}}
    messages = [
        {**USER, "mood": "good"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
    ]
    body = {"messages": messages}
    assert post(harness, "/chat/completions", json.dumps(body).encode()).status_code == 200


def test_text_like_a_placeholder_is_kept_as_text(harness: GatewayHarness) -> None:
    first = harness.ask().choices[0].message
    lookalike = {"role": "user", "content": "\u2402turn0\u2403 \u24020\u2403"}
    harness.ask(
        messages=[{"role": "user", "content": "Where is Ada?"}, first.model_dump(), lookalike]
    )
    (branch,) = harness.session.recording.branches()
    text = harness.policy.chat.decode(branch.tokens)
    assert text.count("In the garden.") == 3 - 1
    assert "\u2402turn0\u2403" in text


def test_thousands_of_open_tool_calls_are_parsed_quickly() -> None:
    """A regular expression that searches the end from each start would take minutes."""
    start = time.perf_counter()
    text = "<tool_call>{" * 50_000
    assert "".join(p for p in read_hermes(text) if isinstance(p, str)) == text
    blanks = ("<tool_call>" + " " * 1000) * 500 + "}</tool_call>" + " " * 10_000 + "</tool_call>"
    assert not any(isinstance(piece, Call) for piece in read_hermes(blanks))
    deep = '<tool_call>{"name": "f", "arguments": ' + "[" * 10_000 + "]" * 10_000 + "}</tool_call>"
    assert not any(isinstance(piece, Call) for piece in read_hermes(deep))
    seconds = time.perf_counter() - start
    print(f"{seconds:.3f} s for hostile completions")
    assert seconds < 2


def test_tool_call_may_contain_its_own_delimiters() -> None:
    text = 'A <tool_call> {"name": "f", "arguments": {"x": "</tool_call>"}} </tool_call> B'
    before, call, after = read_hermes(text)
    assert isinstance(call, Call)
    assert json.loads(call.arguments) == {"x": "</tool_call>"}
    assert (before, after) == ("A ", " B")
