"""Responses API through the openai client: the same tokens as chat completions."""

import json
from typing import Any

import openai
import pytest

from engine.protocol.problems import Problem
from engine.rollout.gateway.sessions import RemoteSession
from tests.engine.rollout.conftest import ASK, TOOL, Served
from tests.engine.rollout.gateway.test_sessions import ScriptedProvider

CALL = '<tool_call>{"name": "find", "arguments": {"who": "Ada"}}</tool_call>'
FIND: Any = {"type": "function", "name": "find", "parameters": {"type": "object"}, "strict": False}


def ask(served: Served, **options: Any) -> Any:
    return served.client.responses.create(
        **{"model": "policy", "input": "Where is Ada?", **options}
    )


def sampled_counts(served: Served) -> list[int]:
    return [branch.sampled for branch in served.session.conversation.branches()]


def test_response_contains_the_sampled_text(served: Served) -> None:
    answer = ask(served, instructions="Be short.")
    assert answer.output_text == "In the garden."
    assert (answer.status, answer.usage.output_tokens) == ("completed", len("In the garden.") + 1)
    messages = served.session.conversation.messages
    assert [m["role"] for m in messages] == ["system", "user", "assistant"]
    assert sampled_counts(served) == [len("In the garden.") + 1]


def test_prompt_equals_that_of_a_chat_completion(served: Served) -> None:
    ask(served, instructions="Be short.", tools=[FIND])
    messages = [{"role": "system", "content": "Be short."}, *ASK]
    served.ask(messages=messages, tools=[TOOL])
    first, second = served.policy.asked
    assert first.tokens == second.tokens


@pytest.mark.parametrize("by_id", [True, False])
def test_turns_with_tool_calls_stay_one_branch(served: Served, by_id: bool) -> None:
    served.policy.says = f"Let me look. {CALL}"
    first = ask(served, tools=[FIND])
    kinds = [item.type for item in first.output]
    assert kinds == ["message", "function_call"]
    call = first.output[1]
    assert (call.name, json.loads(call.arguments)) == ("find", {"who": "Ada"})
    tool_output = {"type": "function_call_output", "call_id": call.call_id, "output": "Garden"}
    served.policy.says = "In the garden."
    if by_id:
        second = ask(served, input=[tool_output], previous_response_id=first.id, tools=[FIND])
    else:
        history = [{"role": "user", "content": "Where is Ada?"}]
        history += [item.model_dump(exclude_none=True) for item in first.output]
        second = ask(served, input=[*history, tool_output], tools=[FIND])
    assert second.output_text == "In the garden."
    assert len(served.session.conversation.branches()) == 1
    assert len(served.session.conversation.branches()[0].spans) == 2


def test_stream_ends_with_the_same_response(served: Served) -> None:
    served.policy.says = f"Let me look. {CALL}"
    with served.client.responses.stream(
        model="policy", input="Where is Ada?", tools=[FIND]
    ) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    assert kinds[0] == "response.created"
    assert kinds[-1] == "response.completed"
    assert final.output_text == "Let me look."
    assert final.output[1].name == "find"  # type: ignore[union-attr]


def test_truncated_response_is_incomplete(served: Served) -> None:
    answer = ask(served, max_output_tokens=4)
    assert (answer.status, answer.output_text) == ("incomplete", "In t")
    assert answer.incomplete_details.reason == "max_output_tokens"
    events = [event.type for event in ask(served, max_output_tokens=4, stream=True)]
    assert events[-1] == "response.incomplete"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tools": [{"type": "web_search"}]}, "run by providers"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "is not supported here"),
        ({"previous_response_id": "resp_x"}, "no response resp_x"),
        (
            {
                "input": [
                    {
                        "role": "user",
                        "content": [{"type": "input_image", "image_url": "x", "detail": "auto"}],
                    }
                ]
            },
            "reads text only",
        ),
        ({"temperature": 9}, "temperature"),
    ],
)
def test_unsupported_options_are_rejected_with_a_message(
    served: Served, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(openai.BadRequestError, match=words):
        ask(served, **options)


def test_response_ids_of_another_session_are_unknown(served: Served) -> None:
    first = ask(served)
    other = served.gateway.open(served.open())
    with pytest.raises(openai.BadRequestError, match="no response"):
        served.client.with_options(api_key=other).responses.create(
            model="policy", input="And?", previous_response_id=first.id
        )


def test_remote_session_answers_both_apis(served: Served) -> None:
    problem = Problem(code="provider.key", message="The provider rejected the key.")
    session = RemoteSession(
        "t1", ScriptedProvider({"content": "Hi"}, {"content": "Ho"}, problem), 3
    )
    client = served.client.with_options(api_key=served.gateway.open(session))
    answer = client.responses.create(model="policy", input="Hello")
    assert answer.output_text == "Hi"
    stream_chunks = client.chat.completions.create(model="policy", messages=ASK, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream_chunks) == "Ho"
    with pytest.raises(openai.BadRequestError, match="rejected the key"):
        client.responses.create(model="policy", input="Hello")
    assert session.trouble == problem
