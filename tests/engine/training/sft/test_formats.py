"""Demonstration lines: the trained messages of each format, or why a line is rejected."""

import json
from typing import Any

import pytest

from engine.training.sft.formats import read_line

ASK, SAY = {"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}
CALL = {"id": "c", "type": "function", "function": {"name": "add", "arguments": "{}"}}


def line(value: Any) -> bytes:
    return json.dumps(value).encode()


def test_messages_train_assistant_turns_except_weight_0() -> None:
    messages = [
        ASK,
        {**SAY, "weight": 0},
        ASK,
        SAY,
        ASK,
        {"role": "assistant", "tool_calls": [CALL]},
    ]
    example = read_line(line({"messages": messages, "tools": [{"type": "function"}]}))
    assert example.form == "messages"
    assert example.learned == {3, 5}
    assert example.tools == [{"type": "function"}]
    assert read_line(line([ASK, SAY])).learned == {1}


def test_prompt_and_completion_train_the_completion() -> None:
    example = read_line(line({"prompt": [ASK, SAY, ASK], "completion": [SAY]}))
    assert example.form == "prompt and completion"
    assert example.learned == {3}
    plain = read_line(line({"prompt": "2 + 2 =", "completion": " 4"}))
    assert (plain.form, plain.prompt, plain.answer) == (
        "text prompt and completion",
        "2 + 2 =",
        " 4",
    )


def test_text_is_trained_whole() -> None:
    example = read_line(b'\xef\xbb\xbf{"text": "Once upon a time"}')
    assert (example.form, example.answer, example.messages) == ("text", "Once upon a time", [])


def test_sharegpt_is_converted_to_messages() -> None:
    turns = [{"from": "human", "value": "2 + 2?"}, {"from": "gpt", "value": "4"}]
    example = read_line(line({"conversations": turns}))
    assert [(m["role"], m["content"]) for m in example.messages] == [
        ("user", "2 + 2?"),
        ("assistant", "4"),
    ]


def test_completions_of_one_prompt_share_its_beginning() -> None:
    first = read_line(line({"messages": [ASK, SAY]}))
    second = read_line(line({"prompt": [ASK], "completion": [{**SAY, "content": "four"}]}))
    other = read_line(line({"messages": [{**ASK, "content": "3 + 3?"}, SAY]}))
    assert first.beginning == second.beginning != other.beginning


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"{", "not valid JSON"),
        (b"\xff\xfe", "not UTF-8"),
        (b"3", "is a int, not an object"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"text": "\\ud800"}', "a lone surrogate"),
        (line({"instruction": "a", "output": "b"}), 'only "instruction", "output"'),
        (line({"prompt": "a", "chosen": "b", "rejected": "c"}), "preference pair"),
        (line({"messages": []}), "not a list of messages, or is empty"),
        (line({"messages": [ASK]}), "no assistant message"),
        (line({"messages": [ASK, {**SAY, "weight": 0}]}), "no assistant message"),
        (line({"messages": [ASK, {**SAY, "weight": 0.5}]}), "the weight 0.5"),
        (line({"messages": [ASK, {"role": "assistant", "content": ""}]}), "is empty"),
        (line({"messages": [{"role": "robot", "content": "x"}]}), "the role 'robot'"),
        (line({"messages": ["x"]}), "Message 1 is not an object"),
        (line({"messages": [{"role": "user", "content": 3}, SAY]}), "neither text nor parts"),
        (
            line({"messages": [{"role": "user", "content": [{"type": "image_url"}]}, SAY]}),
            "an image",
        ),
        (line({"messages": [ASK, {"role": "assistant", "tool_calls": [{}]}]}), "names no function"),
        (line({"messages": [ASK, {**SAY, "function_call": {"name": "f"}}]}), 'old "function_call"'),
        (line({"messages": [ASK, SAY], "tools": "f"}), "not a list of objects"),
        (line({"prompt": "a", "completion": [SAY]}), "both be text"),
        (line({"prompt": [ASK], "completion": [ASK]}), "no assistant message"),
        (line({"prompt": "a", "completion": ""}), "is empty"),
        (line({"text": " "}), "is empty"),
        (line({"text": 3}), "not a string"),
    ],
)
def test_bad_line_states_the_reason(content: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=r".") as error:
        read_line(content)
    assert reason in str(error.value)
    assert str(error.value).endswith(".")
