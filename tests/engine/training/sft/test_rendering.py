"""Tokens and masks of every format are those of transformers' own `apply_chat_template`."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from engine.policy.base import TrainItem
from engine.rollout.rendering.chat import ChatFormat
from engine.training.sft.data import render
from engine.training.sft.formats import read_line

HERMES = """{%- if tools %}<|im_start|>system
Tools: {{ tools | tojson }}<|im_end|>
{% endif %}
{%- for m in messages %}
{%- if m.role == 'assistant' %}{{ '<|im_start|>assistant\n' }}
{%- generation %}{{ m.content or '' }}
{%- for c in m.tool_calls or [] %}<tool_call>
{{ c.function | tojson }}
</tool_call>{% endfor %}{{ '<|im_end|>' }}{% endgeneration %}{{ '\n' }}
{%- else %}{{ '<|im_start|>' + m.role + '\n' + (m.content or '') + '<|im_end|>\n' }}{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""
FORGETS = """{%- for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}
{%- if m.role == 'assistant' and not loop.last %}{{ m.content.split('</think>')[-1] }}
{%- else %}{{ m.content }}{% endif %}{{ '<|im_end|>\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""
CALL = {"type": "function", "function": {"name": "add", "arguments": {"a": 2, "b": 2}}}
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "2 + 2?"},
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "content": "4"},
    {"role": "assistant", "content": "It is 4 – vier ✓."},
    {"role": "user", "content": "Sure?"},
    {"role": "assistant", "content": "Yes."},
]


@pytest.fixture
def folder(tiny_model: Path, tmp_path: Path) -> Path:
    """The tiny model's, whose template marks what the assistant says."""
    return with_template(tiny_model, tmp_path / "marked", HERMES)


def with_template(model: Path, folder: Path, template: str) -> Path:
    shutil.copytree(model, folder)
    (folder / "chat_template.jinja").write_text(template)
    return folder


def tokenizer_of(folder: Path) -> PreTrainedTokenizerFast:
    return AutoTokenizer.from_pretrained(folder)


def rendered(value: Any, folder: Path, context: int = 1000) -> list[TrainItem]:
    with ChatFormat(folder) as chat:
        return render(read_line(json.dumps(value).encode()), chat, context)


def mask_of(item: TrainItem) -> list[int]:
    return [int(any(a <= n < b for a, b in item.spans)) for n in range(len(item.tokens))]


def theirs(
    folder: Path, messages: list[dict[str, Any]], tools: Any = None
) -> tuple[list[int], list[int]]:
    """Tokens and assistant mask, as transformers has them."""
    found = tokenizer_of(folder).apply_chat_template(
        messages, tools=tools, return_dict=True, return_assistant_tokens_mask=True
    )
    return found["input_ids"], found["assistant_masks"]


def test_a_conversation_with_tools(folder: Path) -> None:
    (item,) = rendered({"messages": TALK, "tools": TOOLS}, folder)
    tokens, mask = theirs(folder, TALK, TOOLS)
    assert item.tokens == tokens[: len(item.tokens)], "up to the last trained token"
    assert not any(mask[len(item.tokens) :])
    assert mask_of(item) == mask[: len(item.tokens)]
    assert len(item.spans) == 3


def test_openai_arguments_as_text_give_the_same_tokens(folder: Path) -> None:
    text = {**CALL, "function": {"name": "add", "arguments": json.dumps({"a": 2, "b": 2})}}
    told = [{**m, "tool_calls": [text]} if "tool_calls" in m else m for m in TALK]
    assert rendered({"messages": told}, folder) == rendered({"messages": TALK}, folder)


def test_prompt_and_completion_train_the_completion_alone(folder: Path) -> None:
    (item,) = rendered({"prompt": TALK[:6], "completion": TALK[6:], "tools": TOOLS}, folder)
    tokens, mask = theirs(folder, TALK, TOOLS)
    asked = tokenizer_of(folder).apply_chat_template(
        TALK[:6], tools=TOOLS, add_generation_prompt=True, return_dict=True
    )["input_ids"]
    assert item.tokens == tokens[: len(item.tokens)]
    wanted = [int(known and place >= len(asked)) for place, known in enumerate(mask)]
    assert mask_of(item) == wanted[: len(item.tokens)]


def test_weight_0_is_read_and_not_learned(folder: Path) -> None:
    told = [{**m, "weight": 0} if n == 4 else m for n, m in enumerate(TALK)]
    (every,), (some,) = (rendered({"messages": m}, folder) for m in (TALK, told))
    assert some.tokens == every.tokens
    assert some.spans == [every.spans[0], every.spans[2]]


def test_without_marks_the_answer_ends_before_the_line_break(tiny_model: Path) -> None:
    plain = [m for m in TALK if m["role"] != "tool" and "tool_calls" not in m]
    (item,) = rendered({"messages": plain}, tiny_model)
    whole = tokenizer_of(tiny_model).apply_chat_template(plain, return_dict=True)["input_ids"]
    assert item.tokens == whole[: len(item.tokens)]
    chat = ChatFormat(tiny_model)
    said = [chat.decode(item.tokens[start:end]) for start, end in item.spans]
    assert said == ["It is 4 – vier ✓.<|im_end|>", "Yes.<|im_end|>"]


def test_a_template_that_forgets_thoughts_makes_several_sequences(
    tiny_model: Path, tmp_path: Path
) -> None:
    folder = with_template(tiny_model, tmp_path / "forgets", FORGETS)
    talk = [
        {"role": "user", "content": "2 + 2?"},
        {"role": "assistant", "content": "<think>add</think>4"},
        {"role": "user", "content": "Sure?"},
        {"role": "assistant", "content": "<think>again</think>Yes"},
    ]
    items = rendered({"messages": talk}, folder)
    tokenizer = tokenizer_of(folder)
    for item, end in zip(items, (2, 4), strict=True):
        whole = tokenizer.apply_chat_template(talk[:end], return_dict=True)["input_ids"]
        assert item.tokens == whole[: len(item.tokens)]
    said = [ChatFormat(folder).decode(i.tokens[slice(*i.spans[0])]) for i in items]
    assert said == [m["content"] + "<|im_end|>" for m in talk[1::2]]


def test_plain_text_ends_with_the_end_token(tiny_model: Path) -> None:
    tokenizer = tokenizer_of(tiny_model)
    (text,) = rendered({"text": "Once upon"}, tiny_model)
    assert text.tokens == tokenizer("Once upon<|im_end|>")["input_ids"]
    assert text.spans == [(1, len(text.tokens))]
    (pair,) = rendered({"prompt": "2 + 2 =", "completion": " 4"}, tiny_model)
    assert pair.tokens == tokenizer("2 + 2 = 4<|im_end|>")["input_ids"]
    assert pair.spans == [(len(tokenizer("2 + 2 =")["input_ids"]), len(pair.tokens))]


def test_what_cannot_be_learned_says_why(tiny_model: Path) -> None:
    called = {"messages": [TALK[1], {"role": "assistant", "content": "x", "tool_calls": [CALL]}]}
    with pytest.raises(ValueError, match="leaves out the tool calls of message 2"):
        rendered(called, tiny_model)
    with pytest.raises(ValueError, match=r"It has \d+ tokens; model.max_context is 10"):
        rendered({"text": "a" * 50}, tiny_model, 10)
    with pytest.raises(ValueError, match="a single token"):
        rendered({"text": "<|im_end|>"}, tiny_model)
