"""Completions for scripts are recorded completely even if their parents are forgotten."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.integrations.scripts.completions import KEPT_UPDATES, Completions
from engine.integrations.scripts.gateway import SharedRecording
from engine.integrations.scripts.trajectories import branches_of
from engine.models.file_checks import check_folder
from engine.policy.base import SampledToken
from engine.rollout.recording import Part
from engine.rollout.rendering.chat import ChatFormat
from engine.rollout.rendering.syntaxes import Reply

END = 2
USER = {"role": "user", "content": "Where is Ada?"}


@pytest.fixture
def chat(tiny_model: Path) -> Iterator[ChatFormat]:
    with ChatFormat(check_folder(tiny_model, "tiny")) as chat:
        yield chat


def sample(chat: ChatFormat, text: str) -> list[SampledToken]:
    return [SampledToken(token, -0.5, []) for token in [*chat.encode(text), END]]


def test_completion_is_whole_after_its_parent_is_forgotten(
    chat: ChatFormat, tmp_path: Path
) -> None:
    store = Completions(tmp_path / "known.jsonl")
    first = SharedRecording(chat, None, store, 0, 1.0, 1.0)
    sampled = sample(chat, "In the  garden")
    message = first.record(
        asyncio.run(first.prompt([USER], [], 2000)), [USER], [Part(sampled)],
        Reply("In the  garden", None, [], False),
    )  # fmt: skip

    messages: list[dict[str, Any]] = [USER, message, {"role": "user", "content": "Sure?"}]
    second = SharedRecording(chat, None, store, 0, 1.0, 1.0)
    prompt = asyncio.run(second.prompt(messages, [], 2000))
    assert prompt.parent is not None
    store.forget_before(KEPT_UPDATES + 1)  # training steps run during the sampling
    assert len(store) == 0
    second_sample = sample(chat, "Yes")
    second.record(prompt, messages, [Part(second_sample)], Reply("Yes", None, [], False))

    completion = store.held.get(second.turns[-1].id)
    assert completion is not None
    whole = store.held.whole(completion)
    assert whole.tokens == [*prompt.tokens, *(token.token for token in second_sample)]
    assert whole.start == len(prompt.tokens)
    assert whole.text == chat.decode(whole.tokens)
    store.forget_before(KEPT_UPDATES)
    assert Completions(tmp_path / "known.jsonl").held.whole(completion) == whole
    store.forget_before(KEPT_UPDATES + 1)
    assert len(store) == 0


def test_grammar_of_a_completion_reaches_its_branch(chat: ChatFormat, tmp_path: Path) -> None:
    store = Completions(tmp_path / "known.jsonl")
    conversation = SharedRecording(chat, None, store, 0, 1.0, 1.0)
    messages, completions = [USER], []
    for text, grammar in [("In the garden", None), ("yes", "{}")]:
        prompt = asyncio.run(conversation.prompt(messages, [], 2000))
        reply = Reply(text, None, [], False)
        message = conversation.record(prompt, messages, [Part(sample(chat, text), grammar)], reply)
        completions.append(store.held.get(conversation.turns[-1].id))
        messages = [*messages, message, {"role": "user", "content": "Sure?"}]
    history = [one for one in completions if one is not None]
    (branch,), _ = branches_of([history], Completions(tmp_path / "known.jsonl").held, chat)
    assert len(branch.spans) == 2
    assert branch.grammars == [(1, "{}")]
