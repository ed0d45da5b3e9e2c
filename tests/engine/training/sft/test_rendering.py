"""Tokens and loss masks of every format equal transformers' `apply_chat_template`."""

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
DROPS_THINKING = """{%- for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}
{%- if m.role == 'assistant' and not loop.last %}{{ m.content.split('</think>')[-1] }}
{%- else %}{{ m.content }}{% endif %}{{ '<|im_end|>\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""
CALL = {"type": "function", "function": {"name": "add", "arguments": {"a": 2, "b": 2}}}
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
MESSAGES = [
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
    """Tiny model with a template that marks assistant tokens."""
    return with_template(tiny_model, tmp_path / "marked", HERMES)


def with_template(model: Path, folder: Path, template: str) -> Path:
    shutil.copytree(model, folder)
    (folder / "chat_template.jinja").write_text(template)
    return folder


def tokenizer_of(folder: Path) -> PreTrainedTokenizerFast:
    return AutoTokenizer.from_pretrained(folder)


def render_line(value: Any, folder: Path, context: int = 1000) -> list[TrainItem]:
    with ChatFormat(folder) as chat:
        return render(read_line(json.dumps(value).encode()), chat, context)


def mask_of(item: TrainItem) -> list[int]:
    return [int(any(a <= n < b for a, b in item.spans)) for n in range(len(item.tokens))]


def reference_tokens(
    folder: Path, messages: list[dict[str, Any]], tools: Any = None
) -> tuple[list[int], list[int]]:
    """Tokens and assistant mask by transformers."""
    encoding = tokenizer_of(folder).apply_chat_template(
        messages, tools=tools, return_dict=True, return_assistant_tokens_mask=True
    )
    return encoding["input_ids"], encoding["assistant_masks"]


def test_conversation_with_tools_matches_transformers(folder: Path) -> None:
    (item,) = render_line({"messages": MESSAGES, "tools": TOOLS}, folder)
    tokens, mask = reference_tokens(folder, MESSAGES, TOOLS)
    assert item.tokens == tokens[: len(item.tokens)], "should match up to the last trained token"
    assert not any(mask[len(item.tokens) :])
    assert mask_of(item) == mask[: len(item.tokens)]
    assert len(item.spans) == 3


def test_tool_arguments_as_text_give_the_same_tokens(folder: Path) -> None:
    text = {**CALL, "function": {"name": "add", "arguments": json.dumps({"a": 2, "b": 2})}}
    messages = [{**m, "tool_calls": [text]} if "tool_calls" in m else m for m in MESSAGES]
    assert render_line({"messages": messages}, folder) == render_line(
        {"messages": MESSAGES}, folder
    )


def test_prompt_and_completion_train_only_the_completion(folder: Path) -> None:
    (item,) = render_line(
        {"prompt": MESSAGES[:6], "completion": MESSAGES[6:], "tools": TOOLS}, folder
    )
    tokens, mask = reference_tokens(folder, MESSAGES, TOOLS)
    prompt_tokens = tokenizer_of(folder).apply_chat_template(
        MESSAGES[:6], tools=TOOLS, add_generation_prompt=True, return_dict=True
    )["input_ids"]
    assert item.tokens == tokens[: len(item.tokens)]
    expected_mask = [
        int(is_assistant and index >= len(prompt_tokens)) for index, is_assistant in enumerate(mask)
    ]
    assert mask_of(item) == expected_mask[: len(item.tokens)]


def test_weight_0_messages_are_tokenized_and_not_trained(folder: Path) -> None:
    messages = [{**m, "weight": 0} if n == 4 else m for n, m in enumerate(MESSAGES)]
    (every,), (some,) = (render_line({"messages": m}, folder) for m in (MESSAGES, messages))
    assert some.tokens == every.tokens
    assert some.spans == [every.spans[0], every.spans[2]]


def test_unmarked_template_trains_up_to_the_end_token(tiny_model: Path) -> None:
    plain = [m for m in MESSAGES if m["role"] != "tool" and "tool_calls" not in m]
    (item,) = render_line({"messages": plain}, tiny_model)
    full_tokens = tokenizer_of(tiny_model).apply_chat_template(plain, return_dict=True)["input_ids"]
    assert item.tokens == full_tokens[: len(item.tokens)]
    chat = ChatFormat(tiny_model)
    trained_texts = [chat.decode(item.tokens[start:end]) for start, end in item.spans]
    assert trained_texts == ["It is 4 – vier ✓.<|im_end|>", "Yes.<|im_end|>"]


def test_template_that_drops_thinking_gives_several_sequences(
    tiny_model: Path, tmp_path: Path
) -> None:
    folder = with_template(tiny_model, tmp_path / "drops", DROPS_THINKING)
    conversation = [
        {"role": "user", "content": "2 + 2?"},
        {"role": "assistant", "content": "<think>add</think>4"},
        {"role": "user", "content": "Sure?"},
        {"role": "assistant", "content": "<think>again</think>Yes"},
    ]
    items = render_line({"messages": conversation}, folder)
    tokenizer = tokenizer_of(folder)
    for item, end in zip(items, (2, 4), strict=True):
        full_tokens = tokenizer.apply_chat_template(conversation[:end], return_dict=True)[
            "input_ids"
        ]
        assert item.tokens == full_tokens[: len(item.tokens)]
    trained_texts = [ChatFormat(folder).decode(i.tokens[slice(*i.spans[0])]) for i in items]
    assert trained_texts == [m["content"] + "<|im_end|>" for m in conversation[1::2]]


def test_plain_text_ends_with_the_end_token(tiny_model: Path) -> None:
    tokenizer = tokenizer_of(tiny_model)
    (text,) = render_line({"text": "Once upon"}, tiny_model)
    assert text.tokens == tokenizer("Once upon<|im_end|>")["input_ids"]
    assert text.spans == [(1, len(text.tokens))]
    (pair,) = render_line({"prompt": "2 + 2 =", "completion": " 4"}, tiny_model)
    assert pair.tokens == tokenizer("2 + 2 = 4<|im_end|>")["input_ids"]
    assert pair.spans == [(len(tokenizer("2 + 2 =")["input_ids"]), len(pair.tokens))]


def test_unrenderable_lines_state_the_reason(tiny_model: Path, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    shutil.copytree(tiny_model, plain)
    (plain / "chat_template.jinja").write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    with_call = {
        "messages": [MESSAGES[1], {"role": "assistant", "content": "x", "tool_calls": [CALL]}]
    }
    with pytest.raises(ValueError, match="leaves out the tool calls of message 2"):
        render_line(with_call, plain)
    words = r"The demonstration has \d+ tokens; model.max_context is 10"
    with pytest.raises(ValueError, match=words):
        render_line({"text": "a" * 50}, tiny_model, 10)
    with pytest.raises(ValueError, match="a single token"):
        render_line({"text": "<|im_end|>"}, tiny_model)
