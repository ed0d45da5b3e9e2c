"""Responses API through the openai client: the same tokens as chat completions."""

import json
import time
from typing import Any

import openai
import pytest
from pydantic import BaseModel

from engine.protocol.problems import Problem
from engine.rollout.gateway.sessions import RemoteSession
from tests.engine.rollout.conftest import ASK, TOOL, GatewayHarness, main_conversation
from tests.engine.rollout.gateway.test_sessions import ScriptedProvider

CALL = '<tool_call>{"name": "find", "arguments": {"who": "Ada"}}</tool_call>'
FIND: Any = {"type": "function", "name": "find", "parameters": {"type": "object"}, "strict": False}


def ask(harness: GatewayHarness, **options: Any) -> Any:
    return harness.client.responses.create(
        **{"model": "policy", "input": "Where is Ada?", **options}
    )


def sampled_counts(harness: GatewayHarness) -> list[int]:
    return [branch.sampled for branch in harness.session.recording.branches()]


def test_response_contains_the_sampled_text(harness: GatewayHarness) -> None:
    answer = ask(harness, instructions="Be short.")
    assert answer.output_text == "In the garden."
    assert (answer.status, answer.usage.output_tokens) == ("completed", len("In the garden.") + 1)
    messages = main_conversation(harness.session.recording).messages
    assert [m["role"] for m in messages] == ["system", "user", "assistant"]
    assert sampled_counts(harness) == [len("In the garden.") + 1]


def test_prompt_equals_that_of_a_chat_completion(harness: GatewayHarness) -> None:
    ask(harness, instructions="Be short.", tools=[FIND])
    messages = [{"role": "system", "content": "Be short."}, *ASK]
    harness.ask(messages=messages, tools=[TOOL])
    first, second = harness.policy.asked
    assert first.tokens == second.tokens


@pytest.mark.parametrize("by_id", [True, False])
def test_turns_with_tool_calls_stay_one_branch(harness: GatewayHarness, by_id: bool) -> None:
    harness.policy.says = f"Let me look. {CALL}"
    first = ask(harness, tools=[FIND])
    kinds = [item.type for item in first.output]
    assert kinds == ["message", "function_call"]
    call = first.output[1]
    assert (call.name, json.loads(call.arguments)) == ("find", {"who": "Ada"})
    tool_output = {"type": "function_call_output", "call_id": call.call_id, "output": "Garden"}
    harness.policy.says = "In the garden."
    if by_id:
        second = ask(harness, input=[tool_output], previous_response_id=first.id, tools=[FIND])
    else:
        history = [{"role": "user", "content": "Where is Ada?"}]
        history += [item.model_dump(exclude_none=True) for item in first.output]
        second = ask(harness, input=[*history, tool_output], tools=[FIND])
    assert second.output_text == "In the garden."
    assert len(harness.session.recording.branches()) == 1
    assert len(harness.session.recording.branches()[0].spans) == 2


def test_stream_ends_with_the_same_response(harness: GatewayHarness) -> None:
    harness.policy.says = f"Let me look. {CALL}"
    with harness.client.responses.stream(
        model="policy", input="Where is Ada?", tools=[FIND]
    ) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    assert kinds[0] == "response.created"
    assert kinds[-1] == "response.completed"
    assert final.output_text == "Let me look."
    assert final.output[1].name == "find"  # type: ignore[union-attr]


def test_truncated_response_is_incomplete(harness: GatewayHarness) -> None:
    answer = ask(harness, max_output_tokens=4)
    assert (answer.status, answer.output_text) == ("incomplete", "In t")
    assert answer.incomplete_details.reason == "max_output_tokens"
    events = [event.type for event in ask(harness, max_output_tokens=4, stream=True)]
    assert events[-1] == "response.incomplete"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tools": [{"type": "web_search"}]}, "run at the provider"),
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
    harness: GatewayHarness, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(openai.BadRequestError, match=words):
        ask(harness, **options)


def test_response_ids_of_another_session_are_unknown(harness: GatewayHarness) -> None:
    first = ask(harness)
    other = harness.gateway.open(harness.open())
    with pytest.raises(openai.BadRequestError, match="no response"):
        harness.client.with_options(api_key=other).responses.create(
            model="policy", input="And?", previous_response_id=first.id
        )


def test_remote_session_answers_both_apis(harness: GatewayHarness) -> None:
    problem = Problem(code="provider.key", message="The provider rejected the key.")
    session = RemoteSession(
        "t1", ScriptedProvider({"content": "Hi"}, {"content": "Ho"}, problem), 3
    )
    client = harness.client.with_options(api_key=harness.gateway.open(session))
    answer = client.responses.create(model="policy", input="Hello")
    assert answer.output_text == "Hi"
    stream_chunks = client.chat.completions.create(model="policy", messages=ASK, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream_chunks) == "Ho"
    with pytest.raises(openai.BadRequestError, match="rejected the key"):
        client.responses.create(model="policy", input="Hello")
    assert session.trouble == problem


REASONED = "<think>\nShe likes roses.\n</think>\n\nIn the garden."


@pytest.mark.parametrize("streams", [False, True])
def test_reasoning_is_an_item_that_is_sent_back(qwen: GatewayHarness, streams: bool) -> None:
    """Reasoning, a call and its output, by items or by id, continue the sampled tokens."""
    qwen.policy.says = f"<think>\nI look.\n</think>\n\nLet me look.\n{CALL}"
    if streams:
        with qwen.client.responses.stream(model="policy", input=ASK, tools=[FIND]) as stream:
            kinds = [event.type for event in stream]
            first: Any = stream.get_final_response()
        assert kinds.index("response.reasoning_text.done") < kinds.index(
            "response.output_text.delta"
        )
    else:
        first = ask(qwen, tools=[FIND])
    assert [item.type for item in first.output] == ["reasoning", "message", "function_call"]
    assert first.output[0].content[0].text == "I look."
    assert first.usage.output_tokens_details.reasoning_tokens == len("I look.")
    output: Any = {
        "type": "function_call_output", "call_id": first.output[2].call_id, "output": "Garden",
    }  # fmt: skip
    items = [item.to_dict() for item in first.output]
    qwen.policy.says = REASONED
    ask(qwen, input=[*ASK, *items, output], tools=[FIND])
    ask(qwen, previous_response_id=first.id, input=[output], tools=[FIND])
    _, by_items, by_id = qwen.policy.asked
    assert by_items.tokens == by_id.tokens
    first_branch, second = qwen.session.recording.branches()
    assert len(first_branch.spans) == 2
    assert by_id.tokens == second.tokens[: len(by_id.tokens)]


def test_pieces_arrive_while_the_answer_is_sampled(qwen: GatewayHarness) -> None:
    qwen.policy.says, qwen.policy.delay_s = REASONED, 0.01
    times = [
        time.monotonic() for event in ask(qwen, stream=True) if event.type.endswith("text.delta")
    ]
    assert len(times) > 10
    assert times[-1] - times[0] > 0.1


def test_streamed_events_carry_the_final_items(qwen: GatewayHarness) -> None:
    """Also when the answer is truncated inside the text."""
    qwen.policy.says = REASONED
    events = list(ask(qwen, stream=True, max_output_tokens=len(REASONED) - 40))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    done = [event.item for event in events if event.type == "response.output_item.done"]
    final = events[-1].response
    assert [item.to_dict() for item in done] == [item.to_dict() for item in final.output]
    assert final.status == "incomplete"


def test_stream_can_be_continued_by_its_id(qwen: GatewayHarness) -> None:
    events = list(ask(qwen, stream=True))
    ask(qwen, previous_response_id=events[-1].response.id, input="And now?")
    assert len(qwen.session.recording.branches()) == 1


def test_answer_in_a_schema_is_parsed_by_the_client(qwen: GatewayHarness) -> None:
    class Place(BaseModel):
        place: str

    qwen.policy.says = '{"place": "garden"}'
    answer = qwen.client.responses.parse(model="policy", input="Where?", text_format=Place)
    assert answer.output_parsed == Place(place="garden")
    assert '"place"' in (qwen.policy.asked[-1].grammar or "")
