"""What is sampled for a script is recorded so that it stays whole, whatever is forgotten."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.integrations.scripts.completions import KEPT_UPDATES, Completions
from engine.integrations.scripts.gateway import SharedConversation
from engine.models.file_checks import check_folder
from engine.policy.base import SampledToken
from engine.rollout.rendering.chat import ChatFormat, read_completion

END = 2
USER = {"role": "user", "content": "Where is Ada?"}


@pytest.fixture
def chat(tiny_model: Path) -> Iterator[ChatFormat]:
    with ChatFormat(check_folder(tiny_model, "tiny")) as chat:
        yield chat


def sample(chat: ChatFormat, text: str) -> list[SampledToken]:
    return [SampledToken(token, -0.5, []) for token in [*chat.encode(text), END]]


def test_an_answer_whose_beginning_was_forgotten_meanwhile_is_whole(
    chat: ChatFormat, tmp_path: Path
) -> None:
    known = Completions(tmp_path / "known.jsonl")
    first = SharedConversation(chat, known, 0, 1.0, 1.0)
    sampled = sample(chat, "In the  garden")
    said = first.record(
        asyncio.run(first.prompt([USER], [], 2000)), [USER], sampled, "In the  garden",
        read_completion("In the  garden", False),
    )  # fmt: skip

    messages: list[dict[str, Any]] = [USER, said, {"role": "user", "content": "Sure?"}]
    second = SharedConversation(chat, known, 0, 1.0, 1.0)
    prompt = asyncio.run(second.prompt(messages, [], 2000))
    assert prompt.parent is not None
    known.forget_before(KEPT_UPDATES + 1)  # steps are trained while it is sampled
    assert len(known) == 0
    again = sample(chat, "Yes")
    second.record(prompt, messages, again, "Yes", read_completion("Yes", False))

    one = known.held.get(second.turns[-1].id)
    assert one is not None
    whole = known.held.whole(one)
    assert whole.tokens == [*prompt.tokens, *(token.token for token in again)]
    assert whole.start == len(prompt.tokens)
    assert whole.text == chat.decode(whole.tokens)
    known.forget_before(KEPT_UPDATES)
    assert Completions(tmp_path / "known.jsonl").held.whole(one) == whole
    known.forget_before(KEPT_UPDATES + 1)
    assert len(known) == 0
