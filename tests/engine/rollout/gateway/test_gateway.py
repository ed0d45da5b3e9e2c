"""Chat completions endpoint: the real openai client over real HTTP with a scripted policy."""

import json
from typing import Any

import openai
import pytest

from tests.engine.rollout.conftest import ASK, TOOL, GatewayHarness, main_conversation


def test_completion_has_usage_and_logprobs(harness: GatewayHarness) -> None:
    answer = harness.ask(logprobs=True, top_logprobs=2)
    (choice,) = answer.choices
    assert choice.message.content == "In the garden."
    assert choice.finish_reason == "stop"
    assert answer.usage.completion_tokens == len("In the garden.") + 1
    assert len(choice.logprobs.content) == answer.usage.completion_tokens
    assert len(choice.logprobs.content[0].top_logprobs) == 2
    assert harness.session.recording.branches()[0].sampled == answer.usage.completion_tokens


def test_control_tokens_are_trained_and_not_returned(harness: GatewayHarness) -> None:
    harness.policy.says = "down<|im_start|>"
    answer = harness.ask()
    assert answer.choices[0].message.content == "down"
    assert harness.session.recording.branches()[0].sampled == len("down") + 2
    harness.ask(messages=[*ASK, answer.choices[0].message.model_dump(), *ASK])
    assert len(harness.session.recording.branches()) == 1


def test_max_completion_tokens_truncates_and_is_recorded(harness: GatewayHarness) -> None:
    answer = harness.ask(max_completion_tokens=4)
    assert answer.choices[0].message.content == "In t"
    assert answer.choices[0].finish_reason == "length"
    assert harness.session.recording.truncated
    assert harness.session.recording.cut_by == "agent"


def test_truncation_records_max_tokens_or_context(harness: GatewayHarness) -> None:
    harness.session.max_tokens = 4
    assert harness.ask(max_completion_tokens=200).choices[0].finish_reason == "length"
    assert harness.session.recording.cut_by == "max_tokens"
    (branch,) = harness.session.recording.branches()
    harness.session.max_tokens, harness.session.max_context = 200, branch.spans[0][0] + 3
    assert harness.ask().choices[0].finish_reason == "length"
    assert harness.session.recording.cut_by == "context"


def test_stop_strings_truncate_the_text_and_end_sampling(harness: GatewayHarness) -> None:
    answer = harness.ask(stop=[" gard", "zzz"])
    assert answer.choices[0].message.content == "In the"
    assert answer.choices[0].finish_reason == "stop"
    assert harness.session.recording.branches()[0].sampled == len("In the gard")


def test_n_choices_are_branches_with_their_own_seeds(harness: GatewayHarness) -> None:
    answer = harness.ask(n=3)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert len({request.seed for request in harness.policy.asked}) == 3
    assert [branch.choice for branch in harness.session.recording.branches()] == [0, 1, 2]


def test_streaming_gives_the_same_text(harness: GatewayHarness) -> None:
    harness.policy.says = "Ja – im Gärtchen 🙂."
    text, finish = "", None
    for chunk in harness.ask(stream=True):
        text += chunk.choices[0].delta.content or ""
        finish = chunk.choices[0].finish_reason or finish
    assert text == "Ja – im Gärtchen 🙂."
    assert finish == "stop"


def test_streaming_omits_text_cut_by_a_stop_string(harness: GatewayHarness) -> None:
    chunks = harness.ask(stream=True, stop="garden")
    assert "".join(c.choices[0].delta.content or "" for c in chunks) == "In the "


def test_tool_call_and_result_stay_one_branch(harness: GatewayHarness) -> None:
    harness.policy.says = '<tool_call>\n{"name": "find", "arguments": {"q": "Ada"}}\n</tool_call>'
    first = harness.ask(tools=[TOOL]).choices[0]
    assert first.finish_reason == "tool_calls"
    call = first.message.tool_calls[0]
    assert json.loads(call.function.arguments) == {"q": "Ada"}
    result = {"role": "tool", "tool_call_id": call.id, "content": "garden"}
    harness.policy.says = "In the garden."
    harness.ask(tools=[TOOL], messages=[*ASK, first.message.model_dump(), result])
    (branch,) = harness.session.recording.branches()
    assert len(branch.spans) == 2
    assert main_conversation(harness.session.recording).messages[-1]["content"] == "In the garden."


def test_streamed_tool_call_is_complete(harness: GatewayHarness) -> None:
    harness.policy.says = '<tool_call>{"name": "find", "arguments": {}}</tool_call>'
    chunks = [c.choices[0] for c in harness.ask(tools=[TOOL], stream=True)]
    calls = [c.delta.tool_calls for c in chunks if c.delta.tool_calls]
    assert calls[0][0].function.name == "find"
    assert chunks[-1].finish_reason == "tool_calls"


def test_training_ignores_sampling_parameters_of_the_agent(harness: GatewayHarness) -> None:
    harness.ask(temperature=0, top_p=0.1, seed=5)
    assert (harness.policy.asked[0].temperature, harness.policy.asked[0].top_p) == (1.0, 1.0)
    free = harness.gateway.open(harness.open(free=True))
    harness.client.api_key = free
    harness.ask(temperature=0, top_p=0.1, seed=5)
    harness.ask(temperature=0, top_p=0.1, seed=5)
    free_request = harness.policy.asked[1]
    assert (free_request.temperature, free_request.top_p) == (0, 0.1)
    assert free_request.seed == harness.policy.asked[2].seed


def test_too_many_turns_or_tokens_are_client_errors(harness: GatewayHarness) -> None:
    long = [{"role": "user", "content": "x" * 500}]
    with pytest.raises(openai.BadRequestError, match=r"model\.max_context is 400"):
        harness.ask(messages=long)
    for _ in range(7):
        harness.ask()
    with pytest.raises(openai.BadRequestError, match="8 model calls"):
        harness.ask()
    assert harness.session.failure is None


@pytest.mark.parametrize(
    "body",
    [
        {"messages": []},
        {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
        {"temperature": 9},
        {"n": 0},
    ],
)
def test_invalid_request_is_a_400_with_a_message(
    harness: GatewayHarness, body: dict[str, Any]
) -> None:
    with pytest.raises(openai.BadRequestError) as raised:
        harness.ask(**body)
    assert len(str(raised.value)) > 20
