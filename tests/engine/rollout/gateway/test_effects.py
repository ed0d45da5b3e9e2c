"""Honoured fields of chat completions and Responses: each has its effect, by the openai client.

Those of the Messages API are in test_anthropic.py.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openai
import pytest

from engine.policy.base import SampleRequest
from engine.rollout.gateway.fields import HONOURED
from engine.rollout.rendering.chat import ChatFormat
from tests.engine.rollout.conftest import ASK, TOOL, GatewayHarness
from tests.support.families import FAMILIES, make_family

SAYS = "In the garden."
REASONED = "<think>\nShe likes roses.\n</think>\n\nIn the garden."
CALL = '<tool_call>\n{"name": "find", "arguments": {"q": "Ada"}}\n</tool_call>'
SCHEMA = {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]}
FLAT: Any = {"type": "function", **TOOL["function"]}
Check = Callable[[GatewayHarness], None]


def last(qwen: GatewayHarness) -> SampleRequest:
    return qwen.policy.asked[-1]


def grammar(qwen: GatewayHarness) -> str:
    """Grammar of the last request; empty without one."""
    return qwen.policy.asked[-1].grammar or ""


def messages(qwen: GatewayHarness) -> None:
    qwen.ask(messages=[{"role": "developer", "content": "Be short."}, *ASK])
    assert qwen.prompt.index("Be short.") < qwen.prompt.index("Where is Ada?")


def model(qwen: GatewayHarness) -> None:
    assert qwen.client.chat.completions.create(model="any", messages=ASK).model == "policy"
    assert [one.id for one in qwen.client.models.list()] == ["policy"]


def limits(qwen: GatewayHarness) -> None:
    for name in ("max_tokens", "max_completion_tokens"):
        assert qwen.ask(**{name: 4}).choices[0].finish_reason == "length"
        assert last(qwen).max_tokens == 4


def n(qwen: GatewayHarness) -> None:
    qwen.policy.asked.clear()
    assert [choice.index for choice in qwen.ask(n=3).choices] == [0, 1, 2]
    assert len({request.seed for request in qwen.policy.asked}) == 3
    chunks = [chunk.choices[0] for chunk in qwen.ask(n=2, stream=True)]
    for index in (0, 1):
        words = (chunk.delta.content or "" for chunk in chunks if chunk.index == index)
        assert "".join(words) == SAYS
    places = [chunk.index for chunk in chunks if chunk.delta.content]
    assert places != sorted(places)


def stop(qwen: GatewayHarness) -> None:
    """Also in reasoning, which may end before, and with many tokens at once."""
    for says, wanted, reasoning in (
        (SAYS, "In the", None), (REASONED, "In the", "She likes roses."),
        ("<think>\nTo the garden", "", "To the"),
    ):  # fmt: skip
        for qwen.policy.at_once in (1, 50):
            qwen.policy.says = says
            whole = qwen.ask(stop=["zzzzzz", " gar"]).choices[0]
            assert (whole.message.content, whole.finish_reason) == (wanted, "stop")
            assert getattr(whole.message, "reasoning_content", None) == reasoning
            parts = [chunk.choices[0] for chunk in qwen.ask(stop=["zzzzzz", " gar"], stream=True)]
            deltas = [part.delta for part in parts]
            assert "".join(d.content or "" for d in deltas) == wanted
            thoughts = (getattr(d, "reasoning_content", None) or "" for d in deltas)
            assert "".join(thoughts) == (reasoning or "")
            assert parts[-1].finish_reason == "stop"
            branch = qwen.session.recording.branches()[-1]
            assert qwen.policy.chat.decode(branch.tokens).endswith(" gar")
    qwen.policy.at_once, qwen.policy.says = 1, SAYS


def seed(qwen: GatewayHarness) -> None:
    seeds = []
    for options in ({"seed": 5}, {"seed": 5}, {"seed": 6}, {}, {}):
        qwen.ask(**options)
        seeds.append(last(qwen).seed)
    assert seeds[0] == seeds[1]
    assert len(set(seeds)) == 4


def sampling(qwen: GatewayHarness) -> None:
    qwen.ask(temperature=0.2, top_p=0.7)
    assert (last(qwen).temperature, last(qwen).top_p) == (0.2, 0.7)
    training = qwen.gateway.open(qwen.open())
    qwen.client.with_options(api_key=training).chat.completions.create(
        model="policy", messages=ASK, temperature=0.2, top_p=0.7
    )
    assert (last(qwen).temperature, last(qwen).top_p) == (1.0, 1.0)


def logprobs(qwen: GatewayHarness) -> None:
    """Text and bytes of each token, half characters too, and the same in a stream."""
    qwen.policy.says = "Gärten"
    whole = qwen.ask(logprobs=True, top_logprobs=2).choices[0].logprobs.content
    assert bytes(b for one in whole[:-1] for b in one.bytes).decode() == "Gärten"
    assert [one.token for one in whole[:2]] == ["G", "\ufffd"]
    assert (whole[-1].token, whole[-1].logprob) == ("<|im_end|>", -0.25)
    assert [len(one.top_logprobs) for one in whole] == [2] * len(whole)
    assert last(qwen).top_logprobs == 2
    chunks = [c.choices[0] for c in qwen.ask(logprobs=True, top_logprobs=2, stream=True)]
    assert [one for c in chunks if c.logprobs for one in c.logprobs.content] == whole
    assert qwen.ask().choices[0].logprobs is None
    qwen.policy.says = SAYS


def token_ids(qwen: GatewayHarness) -> None:
    extra = {"return_tokens_as_token_ids": True}
    found = qwen.ask(logprobs=True, extra_body=extra).choices[0].logprobs.content
    assert found[-1].token == f"token_id:{qwen.policy.chat.stops[0]}"


def tools(qwen: GatewayHarness) -> None:
    qwen.policy.says = CALL
    choice = qwen.ask(tools=[TOOL]).choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.tool_calls[0].function.name == "find"
    assert '"name": "find"' in qwen.prompt
    strict = {"type": "function", "function": {**TOOL["function"], "strict": True}}
    assert grammar(qwen) == ""
    qwen.ask(tools=[strict])
    assert "find" in grammar(qwen)
    qwen.policy.says = SAYS


def tool_choice(qwen: GatewayHarness) -> None:
    other = {"type": "function", "function": {"name": "dig"}}
    offered = {"tools": [TOOL, other]}
    named = {"type": "function", "function": {"name": "dig"}}
    allowed = {"mode": "required", "tools": [{"type": "function", "name": "dig"}]}
    for choice in (named, {"type": "allowed_tools", "allowed_tools": allowed}):
        qwen.ask(**offered, tool_choice=choice)
        assert "dig" in grammar(qwen)
        assert "find" not in grammar(qwen)
    qwen.ask(**offered, tool_choice="required")
    assert "dig" in grammar(qwen)
    assert "find" in grammar(qwen)
    qwen.ask(**offered, tool_choice="auto")
    assert grammar(qwen) == ""
    qwen.ask(**offered, tool_choice="none")
    assert "dig" not in qwen.prompt
    missing = {"type": "function", "function": {"name": "fly"}}
    with pytest.raises(openai.BadRequestError, match=r"tool_choice: .*fly"):
        qwen.ask(**offered, tool_choice=missing)


def parallel_tool_calls(qwen: GatewayHarness) -> None:
    offered = {"tools": [TOOL], "tool_choice": "required"}
    qwen.ask(**offered)
    assert '"star"' in grammar(qwen)
    qwen.ask(**offered, parallel_tool_calls=False)
    assert '"star"' not in grammar(qwen)
    qwen.ask(tools=[TOOL], parallel_tool_calls=False)
    assert "find" in grammar(qwen)


def response_format(qwen: GatewayHarness) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}}
    qwen.ask(response_format=form)
    assert json.dumps(SCHEMA) in grammar(qwen)
    qwen.ask(response_format={"type": "json_object"})
    assert json.dumps({"type": "object"}) in grammar(qwen)
    qwen.ask(response_format={"type": "text"})
    assert grammar(qwen) == ""
    with pytest.raises(openai.BadRequestError, match="response_format: "):
        qwen.ask(response_format={"type": "xml"})


def structured_outputs(qwen: GatewayHarness) -> None:
    for given, wanted in (
        ({"json": SCHEMA}, "place"), ({"regex": "[a-z]+"}, "[a-z]+"),
        ({"choice": ["yes", "no"]}, "yes"), ({"grammar": 'root ::= "x"'}, "root ::="),
        ({"json_object": True}, "object"),
    ):  # fmt: skip
        qwen.ask(extra_body={"structured_outputs": given})
        assert wanted in grammar(qwen)
    with pytest.raises(openai.BadRequestError, match="structured_outputs: "):
        qwen.ask(extra_body={"structured_outputs": {"regex": "a", "choice": ["a"]}})


def streaming(qwen: GatewayHarness) -> None:
    chunks = list(qwen.ask(stream=True, stream_options={"include_usage": True}))
    assert "".join(c.choices[0].delta.content or "" for c in chunks[:-1]) == SAYS
    assert [chunk.usage for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1].choices == []
    assert chunks[-1].usage == qwen.ask().usage
    assert all(chunk.usage is None for chunk in qwen.ask(stream=True))


def reasoning_effort(qwen: GatewayHarness) -> None:
    qwen.ask(reasoning_effort="none")
    assert qwen.prompt.endswith("<think>\n\n</think>\n\n")
    with pytest.raises(openai.BadRequestError, match="reasoning_effort"):
        qwen.ask(reasoning_effort="high")


def chat_template_kwargs(qwen: GatewayHarness) -> None:
    qwen.ask(extra_body={"chat_template_kwargs": {"enable_thinking": False}})
    assert qwen.prompt.endswith("<think>\n\n</think>\n\n")
    with pytest.raises(openai.BadRequestError, match=r"chat_template_kwargs\.mood: "):
        qwen.ask(extra_body={"chat_template_kwargs": {"mood": "good"}})


def response_input(qwen: GatewayHarness) -> None:
    qwen.respond(instructions="Be short.", input=ASK)
    assert qwen.prompt.index("Be short.") < qwen.prompt.index("Where is Ada?")


def previous_response_id(qwen: GatewayHarness) -> None:
    first = qwen.respond()
    qwen.respond(previous_response_id=first.id, input="And now?")
    assert qwen.prompt.index(SAYS) < qwen.prompt.index("And now?")


def response_settings(qwen: GatewayHarness) -> None:
    answer = qwen.respond(max_output_tokens=4, temperature=0.2, top_p=0.7)
    assert (answer.status, answer.model) == ("incomplete", "policy")
    request = last(qwen)
    assert (request.max_tokens, request.temperature, request.top_p) == (4, 0.2, 0.7)


def response_logprobs(qwen: GatewayHarness) -> None:
    wanted: Any = {"include": ["message.output_text.logprobs", "reasoning.encrypted_content"]}
    whole = qwen.respond(**wanted, top_logprobs=1).output[0].content[0].logprobs
    assert "".join(one.token for one in whole) == f"{SAYS}<|im_end|>"
    assert len(whole[0].top_logprobs) == 1
    events = list(qwen.respond(**wanted, stream=True))
    (done,) = [event for event in events if event.type == "response.output_text.done"]
    assert len(done.logprobs) == len(whole)
    assert qwen.respond().output[0].content[0].logprobs == []


def response_tools(qwen: GatewayHarness) -> None:
    qwen.policy.says = CALL
    answer = qwen.respond(
        tools=[FLAT], tool_choice={"type": "function", "name": "find"}, parallel_tool_calls=False
    )
    assert (answer.output[0].type, answer.parallel_tool_calls) == ("function_call", False)
    assert "find" in grammar(qwen)
    assert '"star"' not in grammar(qwen)
    qwen.policy.says = SAYS


def response_text(qwen: GatewayHarness) -> None:
    form = {"type": "json_schema", "name": "answer", "schema": SCHEMA, "strict": True}
    qwen.respond(text={"format": form, "verbosity": "medium"})
    assert json.dumps(SCHEMA) in grammar(qwen)
    with pytest.raises(openai.BadRequestError, match=r"text\.verbosity: "):
        qwen.respond(text={"verbosity": "low"})


def response_reasoning(qwen: GatewayHarness) -> None:
    qwen.respond(reasoning={"effort": "none", "summary": "auto"})
    assert qwen.prompt.endswith("<think>\n\n</think>\n\n")
    with pytest.raises(openai.BadRequestError, match=r"reasoning\.effort"):
        qwen.respond(reasoning={"effort": "high"})


def response_extras(qwen: GatewayHarness) -> None:
    qwen.respond(extra_body={"chat_template_kwargs": {"enable_thinking": False}})
    assert qwen.prompt.endswith("<think>\n\n</think>\n\n")
    qwen.respond(extra_body={"structured_outputs": {"choice": ["yes", "no"]}})
    assert "yes" in grammar(qwen)


def response_stream(qwen: GatewayHarness) -> None:
    assert [e.type for e in qwen.respond(stream=True)][-1] == "response.completed"


CHAT: dict[Check, set[str]] = {
    messages: {"messages"}, model: {"model"}, n: {"n"}, stop: {"stop"}, seed: {"seed"},
    limits: {"max_tokens", "max_completion_tokens"}, sampling: {"temperature", "top_p"},
    logprobs: {"logprobs", "top_logprobs"}, token_ids: {"return_tokens_as_token_ids"},
    tools: {"tools"}, tool_choice: {"tool_choice"}, parallel_tool_calls: {"parallel_tool_calls"},
    response_format: {"response_format"}, structured_outputs: {"structured_outputs"},
    streaming: {"stream", "stream_options"}, reasoning_effort: {"reasoning_effort"},
    chat_template_kwargs: {"chat_template_kwargs"},
}  # fmt: skip
RESPONSES: dict[Check, set[str]] = {
    response_input: {"input", "instructions"}, previous_response_id: {"previous_response_id"},
    response_settings: {"model", "max_output_tokens", "temperature", "top_p"},
    response_logprobs: {"include", "top_logprobs"}, response_text: {"text"},
    response_tools: {"tools", "tool_choice", "parallel_tool_calls"},
    response_reasoning: {"reasoning"}, response_stream: {"stream"},
    response_extras: {"chat_template_kwargs", "structured_outputs"},
}  # fmt: skip


def test_every_honoured_field_has_a_check() -> None:
    assert set().union(*CHAT.values()) == HONOURED["chat"]
    assert set().union(*RESPONSES.values()) == HONOURED["responses"]


@pytest.mark.parametrize("check", [*CHAT, *RESPONSES], ids=lambda check: check.__name__)
def test_field_has_its_effect(qwen: GatewayHarness, check: Check) -> None:
    check(qwen)


def test_effort_is_shown_by_a_template_that_reads_it(tmp_path: Path) -> None:
    with ChatFormat(make_family(FAMILIES["gpt-oss"], tmp_path / "gpt-oss")) as chat:
        harness = GatewayHarness(chat, max_context=8_000)
        try:
            harness.policy.says = "<|channel|>final<|message|>In the garden."
            harness.ask(reasoning_effort="high")
            assert "Reasoning: high" in harness.prompt
            harness.respond(reasoning={"effort": "low"})
            assert "Reasoning: low" in harness.prompt
            harness.message(output_config={"effort": "high"})
            assert "Reasoning: high" in harness.prompt
        finally:
            harness.close()
