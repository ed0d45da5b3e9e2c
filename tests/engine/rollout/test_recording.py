"""Conversations: sampled tokens are the trained tokens, over turns, tools and branches."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.models.file_checks import check_folder
from engine.policy.base import SampledToken
from engine.rollout.recording import Part, Prompt, Recording
from engine.rollout.rendering.chat import ChatFormat
from engine.rollout.rendering.syntaxes import Reply

END = 2
TOOL = {"type": "function", "function": {"name": "find", "parameters": {"type": "object"}}}
USER = {"role": "user", "content": "Where is Ada?"}


@pytest.fixture
def chat(tiny_model: Path) -> Iterator[ChatFormat]:
    with ChatFormat(check_folder(tiny_model, "tiny")) as chat:
        yield chat


def prompt_of(
    recording: Recording, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None = None
) -> Prompt:
    return asyncio.run(recording.prompt(messages, tools or [], most_tokens=2000))


def answer(
    recording: Recording,
    chat: ChatFormat,
    messages: list[dict[str, Any]],
    text: str,
    ended: bool = True,
    tools: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """Record one turn in which the policy samples `text`, one token per byte."""
    prompt = prompt_of(recording, messages, tools)
    tokens = chat.encode(text) + ([END] if ended else [])
    sampled = [SampledToken(token, -0.5, []) for token in tokens]
    reply = asyncio.run(chat.parse([token.token for token in sampled], prompt.tokens, tools or []))
    return recording.record(prompt, messages, [Part(sampled)], reply)


def test_turns_that_extend_stay_one_branch(chat: ChatFormat) -> None:
    recording = Recording(chat)
    first = answer(recording, chat, [USER], "In the  garden")
    extended = [USER, first, {"role": "user", "content": "Sure?"}]
    answer(recording, chat, extended, "Yes")
    (branch,) = recording.branches()
    assert [chat.decode(branch.tokens[a:b]) for a, b in branch.spans] == [
        "In the  garden<|im_end|>",
        "Yes<|im_end|>",
    ]
    assert len(branch.logprobs) == branch.sampled
    assert chat.decode(branch.tokens) == (
        "<|im_start|>user\nWhere is Ada?<|im_end|>\n"
        "<|im_start|>assistant\nIn the  garden<|im_end|>\n"
        "<|im_start|>user\nSure?<|im_end|>\n<|im_start|>assistant\nYes<|im_end|>"
    )


def test_sampled_ids_are_never_tokenized_again(chat: ChatFormat) -> None:
    """Token ids that no tokenizer would choose for their text are kept."""
    recording = Recording(chat)
    prompt = prompt_of(recording, [USER])
    unusual_tokens = [SampledToken(token, -1.0, []) for token in [200, 201, 202, END]]
    decoded = chat.decode([200, 201, 202])
    message = recording.record(
        prompt, [USER], [Part(unusual_tokens)], Reply(decoded, None, [], False)
    )
    prompt_of(recording, [USER, message, USER])
    assert prompt_of(recording, [USER, message, USER]).tokens[: len(prompt.tokens) + 4] == [
        *prompt.tokens,
        200,
        201,
        202,
        END,
    ]


def test_fields_added_by_client_libraries_are_ignored(chat: ChatFormat) -> None:
    recording = Recording(chat)
    first = answer(recording, chat, [USER], "Here")
    decorated = {**first, "refusal": None, "audio": None, "tool_calls": None}
    assert prompt_of(recording, [USER, decorated, USER]).parent is not None


def test_rewritten_history_starts_a_new_branch(chat: ChatFormat) -> None:
    recording = Recording(chat)
    answer(recording, chat, [USER], "Here")
    edited = [USER, {"role": "assistant", "content": "There"}, USER]
    answer(recording, chat, edited, "Why?")
    first, second = recording.branches()
    assert first.sampled + second.sampled == len(chat.encode("HereWhy?")) + 2
    assert len(second.spans) == 1


def test_fork_does_not_train_the_shared_turn_twice(chat: ChatFormat) -> None:
    recording = Recording(chat)
    first = answer(recording, chat, [USER], "Here")
    answer(recording, chat, [USER, first, {"role": "user", "content": "a"}], "left")
    answer(recording, chat, [USER, first, {"role": "user", "content": "b"}], "right")
    left, right = recording.branches()
    assert len(left.spans) == 2
    assert len(right.spans) == 1
    assert right.tokens[: len(left.tokens)][:20] == left.tokens[:20]


def test_truncated_answer_still_extends(chat: ChatFormat) -> None:
    recording = Recording(chat)
    first = answer(recording, chat, [USER], "In the gar", ended=False)
    answer(recording, chat, [USER, first, USER], "Yes")
    assert len(recording.branches()) == 1


def test_pieces_join_to_the_text(chat: ChatFormat) -> None:
    tokens = chat.encode("naïve – 東京 🙂 end")
    assert "".join(chat.pieces(tokens)) == "naïve – 東京 🙂 end"


@pytest.mark.parametrize("tools", [[], [{**TOOL, "function": {"name": "other"}}]])
def test_other_tools_start_a_new_branch(chat: ChatFormat, tools: list[dict[str, Any]]) -> None:
    """The recorded prompt shows tools that the next one does not have; also if the template formats
    the call differently, so that the texts differ anyway."""
    recording = Recording(chat)
    call = '<tool_call>{"name":"find","arguments":{"q":"Zürich \\u00fc"}}</tool_call>'
    first = answer(recording, chat, [USER], call, tools=[TOOL])
    result = {"role": "tool", "tool_call_id": first["tool_calls"][0]["id"], "content": "garden"}
    assert prompt_of(recording, [USER, first, result], [TOOL]).parent is not None
    prompt = prompt_of(recording, [USER, first, result], tools)
    assert prompt.parent is None
    assert prompt.reason == "the agent changed its tools or template variables"
    assert prompt.tokens == chat.encode(chat.render([USER, first, result], tools))


def test_grammar_is_recorded_with_its_span(chat: ChatFormat) -> None:
    recording = Recording(chat)
    first = answer(recording, chat, [USER], "In the garden")
    extended = [USER, first, {"role": "user", "content": "Sure?"}]
    tokens = chat.encode("yes")
    recording.record(
        prompt_of(recording, extended),
        extended,
        [Part([SampledToken(token, -0.5, []) for token in [*tokens, END]], "{}")],
        Reply("yes", None, [], False),
    )
    (branch,) = recording.branches()
    assert len(branch.spans) == 2
    assert branch.grammars == [(1, "{}")]
