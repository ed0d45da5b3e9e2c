"""The endpoint as its users see it: the real openai client over real HTTP, a scripted policy."""

import json
from typing import Any

import openai
import pytest

from tests.engine.rollout.conftest import ASK, TOOL, Served


def test_an_answer_with_usage_and_logprobs(served: Served) -> None:
    answer = served.ask(logprobs=True, top_logprobs=2)
    (choice,) = answer.choices
    assert choice.message.content == "In the garden."
    assert choice.finish_reason == "stop"
    assert answer.usage.completion_tokens == len("In the garden.") + 1
    assert len(choice.logprobs.content) == answer.usage.completion_tokens
    assert len(choice.logprobs.content[0].top_logprobs) == 2
    assert served.session.conversation.branches()[0].sampled == answer.usage.completion_tokens


def test_control_tokens_are_trained_and_not_said(served: Served) -> None:
    served.policy.says = "down<|im_start|>"
    answer = served.ask()
    assert answer.choices[0].message.content == "down"
    assert served.session.conversation.branches()[0].sampled == len("down") + 2
    served.ask(messages=[*ASK, answer.choices[0].message.model_dump(), *ASK])
    assert len(served.session.conversation.branches()) == 1


def test_limits_cut_and_say_so(served: Served) -> None:
    answer = served.ask(max_completion_tokens=4)
    assert answer.choices[0].message.content == "In t"
    assert answer.choices[0].finish_reason == "length"
    assert served.session.conversation.truncated
    assert served.session.conversation.cut_by == "agent"


def test_the_limit_that_cut_a_completion_is_known(served: Served) -> None:
    served.session.max_tokens = 4
    assert served.ask(max_completion_tokens=200).choices[0].finish_reason == "length"
    assert served.session.conversation.cut_by == "max_tokens"
    (branch,) = served.session.conversation.branches()
    served.session.max_tokens, served.session.max_context = 200, branch.spans[0][0] + 3
    assert served.ask().choices[0].finish_reason == "length"
    assert served.session.conversation.cut_by == "context"


def test_stop_strings_cut_the_text_and_end_the_sampling(served: Served) -> None:
    answer = served.ask(stop=[" gard", "zzz"])
    assert answer.choices[0].message.content == "In the"
    assert answer.choices[0].finish_reason == "stop"
    assert served.session.conversation.branches()[0].sampled == len("In the gard")


def test_several_answers_are_branches_with_their_own_seeds(served: Served) -> None:
    answer = served.ask(n=3)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert len({request.seed for request in served.policy.asked}) == 3
    assert [branch.choice for branch in served.session.conversation.branches()] == [0, 1, 2]


def test_streaming_gives_the_same_text(served: Served) -> None:
    served.policy.says = "Ja – im Gärtchen 🙂."
    said, finish = "", None
    for chunk in served.ask(stream=True):
        said += chunk.choices[0].delta.content or ""
        finish = chunk.choices[0].finish_reason or finish
    assert said == "Ja – im Gärtchen 🙂."
    assert finish == "stop"


def test_streaming_never_shows_what_a_stop_string_cuts(served: Served) -> None:
    chunks = served.ask(stream=True, stop="garden")
    assert "".join(c.choices[0].delta.content or "" for c in chunks) == "In the "


def test_tool_calls_there_and_back_stay_one_branch(served: Served) -> None:
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


def test_a_streamed_tool_call_comes_whole(served: Served) -> None:
    served.policy.says = '<tool_call>{"name": "find", "arguments": {}}</tool_call>'
    chunks = [c.choices[0] for c in served.ask(tools=[TOOL], stream=True)]
    calls = [c.delta.tool_calls for c in chunks if c.delta.tool_calls]
    assert calls[0][0].function.name == "find"
    assert chunks[-1].finish_reason == "tool_calls"


def test_training_samples_from_the_policy_whatever_the_agent_asks(served: Served) -> None:
    served.ask(temperature=0, top_p=0.1, seed=5)
    assert (served.policy.asked[0].temperature, served.policy.asked[0].top_p) == (1.0, 1.0)
    free = served.gateway.open(served.open(free=True))
    served.client.api_key = free
    served.ask(temperature=0, top_p=0.1, seed=5)
    served.ask(temperature=0, top_p=0.1, seed=5)
    asked = served.policy.asked[1]
    assert (asked.temperature, asked.top_p) == (0, 0.1)
    assert asked.seed == served.policy.asked[2].seed


def test_too_many_turns_and_a_full_context_are_the_agents_to_handle(served: Served) -> None:
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
def test_nonsense_is_a_400_with_words(served: Served, body: dict[str, Any]) -> None:
    with pytest.raises(openai.BadRequestError) as raised:
        served.ask(**body)
    assert len(str(raised.value)) > 20
