"""Messages API through the official anthropic client over real HTTP, with a scripted policy."""

import json
import time
from collections.abc import Callable
from typing import Any

import anthropic
import pytest

from engine.rollout.gateway.anthropic import SIGNATURE
from engine.rollout.gateway.fields import HONOURED
from engine.rollout.gateway.sessions import RemoteSession
from tests.engine.rollout.conftest import ASK, TOOL, GatewayHarness
from tests.engine.rollout.gateway.test_sessions import ScriptedProvider

SAYS = "In the garden."
REASONED = f"<think>\nShe likes roses.\n</think>\n\n{SAYS}"
CALL = '<tool_call>\n{"name": "find", "arguments": {"q": "Ada"}}\n</tool_call>'
FIND: Any = {"name": "find", "input_schema": {"type": "object"}, "cache_control": None}
SCHEMA = {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}
Check = Callable[[GatewayHarness], None]


def stream(qwen: GatewayHarness, **options: Any) -> Any:
    options = {"model": "policy", "max_tokens": 500, "messages": ASK, **options}
    return qwen.anthropic.messages.stream(**options)


def grammar(qwen: GatewayHarness) -> str:
    return qwen.policy.asked[-1].grammar or ""


def messages(qwen: GatewayHarness) -> None:
    answer = qwen.message(system="Be short.")
    assert (answer.type, answer.role, answer.model) == ("message", "assistant", "policy")
    assert [(block.type, block.text) for block in answer.content] == [("text", SAYS)]
    assert (answer.stop_reason, answer.stop_sequence) == ("end_turn", None)
    assert answer.usage.input_tokens == len(qwen.policy.asked[-1].tokens)
    assert answer.usage.output_tokens == len(SAYS) + 1
    blocks = [{"type": "text", "text": "Be short.", "cache_control": {"type": "ephemeral"}}]
    words = [{"type": "text", "text": "Where is Ada?", "cache_control": {"type": "ephemeral"}}]
    qwen.message(system=blocks, messages=[{"role": "user", "content": words}])
    first, second = qwen.policy.asked
    assert first.tokens == second.tokens
    qwen.ask(messages=[{"role": "system", "content": "Be short."}, *ASK])
    assert qwen.policy.asked[-1].tokens == first.tokens


def limits(qwen: GatewayHarness) -> None:
    answer = qwen.message(max_tokens=4)
    assert (answer.content[0].text, answer.stop_reason) == ("In t", "max_tokens")
    assert qwen.session.recording.cut_by == "agent"


def stop_sequences(qwen: GatewayHarness) -> None:
    for answer in (
        qwen.message(stop_sequences=[" gar", "zz"]),
        stream(qwen, stop_sequences=[" gar", "zz"]).__enter__().get_final_message(),
    ):
        assert answer.content[0].text == "In the"
        assert (answer.stop_reason, answer.stop_sequence) == ("stop_sequence", " gar")


def streaming(qwen: GatewayHarness) -> None:
    """Pieces arrive while the answer is sampled."""
    qwen.policy.delay_s = 0.02
    with stream(qwen) as opened:
        times = [time.monotonic() for text in opened.text_stream if text]
        final = opened.get_final_message()
    assert times[-1] - times[0] > 0.1
    assert final.content[0].text == SAYS
    assert final.usage.output_tokens == len(SAYS) + 1
    assert final.usage.input_tokens == len(qwen.policy.asked[-1].tokens)


def sampling(qwen: GatewayHarness) -> None:
    qwen.message(extra_body={"temperature": 0.2, "top_p": 0.7})
    request = qwen.policy.asked[-1]
    assert (request.temperature, request.top_p) == (0.2, 0.7)


def thinking(qwen: GatewayHarness) -> None:
    """Thinking blocks are streamed, and sent back they leave one branch."""
    qwen.policy.says = REASONED
    whole = qwen.message(thinking={"type": "enabled", "budget_tokens": 1024})
    with stream(qwen, thinking={"type": "enabled", "budget_tokens": 1024}) as opened:
        deltas = {event.delta.type for event in opened if event.type == "content_block_delta"}
        streamed = opened.get_final_message()
    assert deltas == {"thinking_delta", "signature_delta", "text_delta"}
    for answer in (whole, streamed):
        assert [block.type for block in answer.content] == ["thinking", "text"]
        assert answer.content[0].thinking == "She likes roses."
        assert answer.content[0].signature == SIGNATURE
        assert answer.content[1].text == SAYS
    qwen.policy.says = SAYS
    qwen.message(thinking={"type": "disabled"})
    assert qwen.prompt.endswith("<think>\n\n</think>\n\n")


def tools(qwen: GatewayHarness) -> None:
    """Turns with reasoning, a tool call and its result stay one branch."""
    qwen.policy.says = f"<think>\nI look.\n</think>\n\nLet me look.\n{CALL}"
    for first in (
        qwen.message(tools=[FIND]), stream(qwen, tools=[FIND]).__enter__().get_final_message()
    ):  # fmt: skip
        assert [block.type for block in first.content] == ["thinking", "text", "tool_use"]
        assert first.stop_reason == "tool_use"
        use = first.content[2]
        assert (use.name, use.input) == ("find", {"q": "Ada"})
    result = {"type": "tool_result", "tool_use_id": use.id, "content": [
        {"type": "text", "text": "garden"}]}  # fmt: skip
    turns = [*ASK, {"role": "assistant", "content": first.content}]
    qwen.policy.says = REASONED
    counted = qwen.anthropic.messages.count_tokens(
        model="policy", tools=[FIND], messages=[*turns, {"role": "user", "content": [result]}]
    )
    before = len(qwen.session.recording.branches())
    qwen.message(tools=[FIND], messages=[*turns, {"role": "user", "content": [result]}])
    assert counted.input_tokens == len(qwen.policy.asked[-1].tokens)
    branches = qwen.session.recording.branches()
    assert len(branches) == before
    assert len(branches[-1].spans) == 2
    assert branches[-1].tokens[: len(qwen.policy.asked[-1].tokens)] == qwen.policy.asked[-1].tokens
    assert qwen.prompt.count("<tool_response>\ngarden\n</tool_response>") == 1
    failed = {**result, "is_error": True, "content": "no such place"}
    qwen.message(tools=[FIND], messages=[*turns, {"role": "user", "content": [failed]}])
    assert "Error: no such place" in qwen.prompt


def tool_choice(qwen: GatewayHarness) -> None:
    offered: Any = {"tools": [FIND, {**FIND, "name": "dig"}]}
    qwen.message(**offered, tool_choice={"type": "any"})
    assert "find" in grammar(qwen)
    assert "dig" in grammar(qwen)
    qwen.message(**offered, tool_choice={"type": "tool", "name": "dig"})
    assert "find" not in grammar(qwen)
    assert '"star"' in grammar(qwen)
    only = {"type": "tool", "name": "dig", "disable_parallel_tool_use": True}
    qwen.message(**offered, tool_choice=only)
    assert '"star"' not in grammar(qwen)
    qwen.message(**offered, tool_choice={"type": "auto"})
    assert grammar(qwen) == ""
    qwen.message(**offered, tool_choice={"type": "none"})
    assert "dig" not in qwen.prompt


def output_config(qwen: GatewayHarness) -> None:
    form = {"type": "json_schema", "schema": SCHEMA}
    qwen.message(output_config={"format": form})
    assert json.dumps(SCHEMA) in grammar(qwen)
    qwen.message(extra_body={"output_format": form})
    assert json.dumps(SCHEMA) in grammar(qwen)
    qwen.message(output_config={"effort": "none"})
    assert qwen.prompt.endswith("<think>\n\n</think>\n\n")
    with pytest.raises(anthropic.BadRequestError, match=r"output_config\.effort"):
        qwen.message(output_config={"effort": "high"})


def chat_template_kwargs(qwen: GatewayHarness) -> None:
    qwen.message(extra_body={"chat_template_kwargs": {"enable_thinking": False}})
    assert qwen.prompt.endswith("<think>\n\n</think>\n\n")


CHECKS: dict[Check, set[str]] = {
    messages: {"messages", "model", "system"}, limits: {"max_tokens"}, streaming: {"stream"},
    stop_sequences: {"stop_sequences"}, sampling: {"temperature", "top_p"}, tools: {"tools"},
    thinking: {"thinking"}, tool_choice: {"tool_choice"},
    output_config: {"output_config", "output_format"},
    chat_template_kwargs: {"chat_template_kwargs"},
}  # fmt: skip


def test_every_honoured_field_has_a_check() -> None:
    assert set().union(*CHECKS.values()) == HONOURED["messages"]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_field_has_its_effect(qwen: GatewayHarness, check: Check) -> None:
    check(qwen)


def test_token_count_is_that_of_the_prompt(qwen: GatewayHarness) -> None:
    options: Any = {"system": "Be short.", "tools": [FIND], "messages": ASK}
    counted = qwen.anthropic.messages.count_tokens(model="policy", **options)
    assert qwen.policy.asked == []
    assert qwen.message(**options).usage.input_tokens == counted.input_tokens
    assert len(qwen.policy.asked[0].tokens) == counted.input_tokens


def test_key_is_taken_from_either_header(qwen: GatewayHarness) -> None:
    url = str(qwen.anthropic.base_url)
    for given in ({"api_key": qwen.key}, {"auth_token": qwen.key}):
        with anthropic.Anthropic(base_url=url, **given) as client:
            answer = client.messages.create(model="policy", max_tokens=50, messages=ASK)
        assert answer.content[0].type == "text"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "Look"}, IMAGE]}]},
         r"messages\.0\.content\.1: .*image"),
        ({"messages": [*ASK, {"role": "assistant", "content": "In the"}]},
         r"messages\.1: .*cannot continue"),
        ({"messages": [{"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "a", "content": [IMAGE]}]}]},
         r"messages\.0\.content\.0\.content\.0: .*image"),
        ({"messages": [{"role": "user", "content": 5}]}, r"messages\.0\.content"),
        ({"messages": []}, "messages: "),
        ({"system": [IMAGE]}, r"system\.0: .*image"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, r"tools\.0: "),
        ({"tool_choice": {"type": "any"}}, "tool_choice: "),
        ({"tool_choice": {"type": "some"}, "tools": [FIND]}, "tool_choice: "),
        ({"stop_sequences": ["x" * 2000]}, r"stop_sequences\.0: "),
        ({"output_config": {"format": {"type": "xml"}}}, r"output_config\.format: "),
        ({"max_tokens": 0}, "max_tokens: "),
    ],
)  # fmt: skip
def test_invalid_request_is_an_error_in_the_form_of_the_api(
    qwen: GatewayHarness, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(anthropic.BadRequestError, match=words) as raised:
        qwen.message(**options)
    body: Any = raised.value.body
    assert (body["type"], body["error"]["type"]) == ("error", "invalid_request_error")
    assert qwen.session.failure is None


def test_prompt_that_is_too_long_is_a_client_error(harness: GatewayHarness) -> None:
    with pytest.raises(anthropic.BadRequestError, match=r"model\.max_context is 400"):
        harness.message(messages=[{"role": "user", "content": "x" * 500}])
    assert harness.session.recording.cut_by == "context"


def test_same_call_by_each_api_has_the_same_prompt(qwen: GatewayHarness) -> None:
    system = [{"role": "system", "content": "Be short."}]
    qwen.message(system="Be short.", tools=[FIND])
    qwen.ask(messages=[*system, *ASK], tools=[TOOL])
    flat = {"type": "function", **TOOL["function"]}
    qwen.respond(instructions="Be short.", tools=[flat])
    assert len({tuple(request.tokens) for request in qwen.policy.asked}) == 1


def test_branch_says_that_the_agent_left_out_the_reasoning(qwen: GatewayHarness) -> None:
    qwen.policy.says = f"<think>\nI look.\n</think>\n\n{CALL}"
    use = qwen.message(tools=[FIND]).content[1]
    result = {"type": "tool_result", "tool_use_id": use.id, "content": "garden"}
    turns = [*ASK, {"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    qwen.message(tools=[FIND], messages=turns)
    _, second = qwen.session.recording.branches()
    assert second.reason == "the agent left out the reasoning of an earlier answer"


def test_model_of_a_provider_answers_messages(qwen: GatewayHarness) -> None:
    provider = ScriptedProvider({"content": "Hi"}, {"content": "Ho", "reasoning_content": "Hm"})
    key = qwen.gateway.open(RemoteSession("t1", provider, max_turns=3))
    client = qwen.anthropic.with_options(api_key=key)
    options: Any = {"model": "policy", "max_tokens": 50, "messages": ASK}
    answer: Any = client.messages.create(**options, stop_sequences=["x"])
    assert (answer.content[0].text, answer.usage.output_tokens) == ("Hi", 5)
    assert provider.asked[0][2] == {"messages": ASK, "max_tokens": 50, "stop": ["x"]}
    with client.messages.stream(**options) as opened:
        final: Any = opened.get_final_message()
    assert [block.type for block in final.content] == ["thinking", "text"]
    with pytest.raises(anthropic.BadRequestError, match="does not count tokens"):
        client.messages.count_tokens(model="policy", messages=ASK)


def test_client_may_leave_in_the_middle_of_a_stream(qwen: GatewayHarness) -> None:
    """Nothing of the answer is recorded, and the rollout goes on."""
    qwen.policy.says, qwen.policy.delay_s = SAYS * 20, 0.01
    with stream(qwen) as opened:
        next(iter(opened.text_stream))
    qwen.policy.says, qwen.policy.delay_s = SAYS, 0.0
    assert qwen.message().content[0].text == SAYS
    (branch,) = qwen.session.recording.branches()
    assert branch.sampled == len(SAYS) + 1
    assert qwen.session.failure is None
