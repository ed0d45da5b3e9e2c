"""Chat completions endpoint: the real openai client over real HTTP with a scripted policy."""

import json
from typing import Any

import openai
import pytest

from tests.engine.rollout.conftest import ASK, TOOL, Served


def test_completion_has_usage_and_logprobs(served: Served) -> None:
    answer = served.ask(logprobs=True, top_logprobs=2)
    (choice,) = answer.choices
    assert choice.message.content == "In the garden."
    assert choice.finish_reason == "stop"
    assert answer.usage.completion_tokens == len("In the garden.") + 1
    assert len(choice.logprobs.content) == answer.usage.completion_tokens
    assert len(choice.logprobs.content[0].top_logprobs) == 2
    assert served.session.conversation.branches()[0].sampled == answer.usage.completion_tokens


def test_control_tokens_are_trained_and_not_returned(served: Served) -> None:
    served.policy.says = "down<|im_start|>"
    answer = served.ask()
    assert answer.choices[0].message.content == "down"
    assert served.session.conversation.branches()[0].sampled == len("down") + 2
    served.ask(messages=[*ASK, answer.choices[0].message.model_dump(), *ASK])
    assert len(served.session.conversation.branches()) == 1


def test_max_completion_tokens_truncates_and_is_recorded(served: Served) -> None:
    answer = served.ask(max_completion_tokens=4)
    assert answer.choices[0].message.content == "In t"
    assert answer.choices[0].finish_reason == "length"
    assert served.session.conversation.truncated
    assert served.session.conversation.cut_by == "agent"


def test_truncation_records_max_tokens_or_context(served: Served) -> None:
    served.session.max_tokens = 4
    assert served.ask(max_completion_tokens=200).choices[0].finish_reason == "length"
    assert served.session.conversation.cut_by == "max_tokens"
    (branch,) = served.session.conversation.branches()
    served.session.max_tokens, served.session.max_context = 200, branch.spans[0][0] + 3
    assert served.ask().choices[0].finish_reason == "length"
    assert served.session.conversation.cut_by == "context"


def test_stop_strings_truncate_the_text_and_end_sampling(served: Served) -> None:
    answer = served.ask(stop=[" gard", "zzz"])
    assert answer.choices[0].message.content == "In the"
    assert answer.choices[0].finish_reason == "stop"
    assert served.session.conversation.branches()[0].sampled == len("In the gard")


def test_n_choices_are_branches_with_their_own_seeds(served: Served) -> None:
    answer = served.ask(n=3)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert len({request.seed for request in served.policy.asked}) == 3
    assert [branch.choice for branch in served.session.conversation.branches()] == [0, 1, 2]


def test_streaming_gives_the_same_text(served: Served) -> None:
    served.policy.says = "Ja – im Gärtchen 🙂."
    text, finish = "", None
    for chunk in served.ask(stream=True):
        text += chunk.choices[0].delta.content or ""
        finish = chunk.choices[0].finish_reason or finish
    assert text == "Ja – im Gärtchen 🙂."
    assert finish == "stop"


def test_streaming_omits_text_cut_by_a_stop_string(served: Served) -> None:
    chunks = served.ask(stream=True, stop="garden")
    assert "".join(c.choices[0].delta.content or "" for c in chunks) == "In the "


def test_tool_call_and_result_stay_one_branch(served: Served) -> None:
    served.policy.says = '<tool_call>\n{"name": "find", "arguments": {"q": "Ada"}}\n</tool_call>'
    first = served.ask(tools=[TOOL]).choices[0]
    assert first.finish_reason == "tool_calls"
    call = first.message.tool_calls[0]
    assert json.loads(call.function.arguments) == {"q": "Ada"}
    result = {"role": "tool", "tool_call_id": call.id, "content": "garden"}
    served.policy.says = "In the garden."
    served.ask(tools=[TOOL], messages=[*ASK, first.message.model_dump(), result])
    (branch,) = served.session.conversation.branches()
    assert len(branch.spans) == 2
    assert served.session.conversation.messages[-1]["content"] == "In the garden."


def test_streamed_tool_call_is_complete(served: Served) -> None:
    served.policy.says = '<tool_call>{"name": "find", "arguments": {}}</tool_call>'
    chunks = [c.choices[0] for c in served.ask(tools=[TOOL], stream=True)]
    calls = [c.delta.tool_calls for c in chunks if c.delta.tool_calls]
    assert calls[0][0].function.name == "find"
    assert chunks[-1].finish_reason == "tool_calls"


def test_training_ignores_sampling_parameters_of_the_agent(served: Served) -> None:
    served.ask(temperature=0, top_p=0.1, seed=5)
    assert (served.policy.asked[0].temperature, served.policy.asked[0].top_p) == (1.0, 1.0)
    free = served.gateway.open(served.open(free=True))
    served.client.api_key = free
    served.ask(temperature=0, top_p=0.1, seed=5)
    served.ask(temperature=0, top_p=0.1, seed=5)
    free_request = served.policy.asked[1]
    assert (free_request.temperature, free_request.top_p) == (0, 0.1)
    assert free_request.seed == served.policy.asked[2].seed


def test_too_many_turns_or_tokens_are_client_errors(served: Served) -> None:
    long = [{"role": "user", "content": "x" * 500}]
    with pytest.raises(openai.BadRequestError, match=r"model\.max_context is 400"):
        served.ask(messages=long)
    for _ in range(7):
        served.ask()
    with pytest.raises(openai.BadRequestError, match="8 model calls"):
        served.ask()
    assert served.session.failure is None


@pytest.mark.parametrize(
    "body",
    [
        {"messages": []},
        {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
        {"temperature": 9},
        {"n": 0},
    ],
)
def test_invalid_request_is_a_400_with_a_message(served: Served, body: dict[str, Any]) -> None:
    with pytest.raises(openai.BadRequestError) as raised:
        served.ask(**body)
    assert len(str(raised.value)) > 20
