"""Transcript of a trajectory for the judge. Pure.

Long transcripts are shortened by one rule: each message longer than its share keeps its beginning
and end, with a note on how much is missing. Shares shrink until the
transcript fits. Nothing is removed silently.
"""

import json
from itertools import takewhile
from typing import Any

from engine.protocol.records.conversations import IMAGE, Message, in_text
from engine.protocol.records.runs import Trajectory

LEAST_SHARE = 200
"""Minimum characters kept of each message."""


def lines_of(trajectory: Trajectory, most_chars: int, reasoning: bool = True) -> str:
    """Return a trajectory's messages as text of at most about `most_chars` characters, with the
    reasoning before each answer unless `reasoning` is False."""
    texts = [_words(message, reasoning) for message in trajectory.messages]
    heads = [_head(message) for message in trajectory.messages]
    share = max([LEAST_SHARE, *map(len, texts)])
    while share > LEAST_SHARE and _size(heads, texts, share) > most_chars:
        share = max(LEAST_SHARE, share * 3 // 4)
    return "\n".join(
        f"{head}\n{shorten_middle(text, share)}" for head, text in zip(heads, texts, strict=True)
    )


def shorten_middle(text: str, most: int) -> str:
    """Text of more than `most` characters without its middle, with a note on what is missing."""
    if len(text) <= most:
        return text
    head, tail = most * 2 // 3, most // 3
    missing = len(text) - head - tail
    return f"{text[:head]}\n[… {missing} characters left out …]\n{text[len(text) - tail :]}"


def without_reasoning(trajectory: Trajectory) -> Trajectory:
    """Return a trajectory whose messages have no reasoning."""
    messages = [message.model_copy(update={"reasoning": ""}) for message in trajectory.messages]
    return trajectory.model_copy(update={"messages": messages})


def part_of(trajectory: Trajectory, start: int = 0, end: int | None = None) -> Trajectory:
    """Return a trajectory with its messages from `start` to `end` only, as text: each image is
    "[image 1]", numbered in the whole trajectory."""
    return trajectory.model_copy(update={"messages": in_text(trajectory.messages)[start:end]})


def openai_messages(trajectory: Trajectory) -> list[dict[str, Any]]:
    """Return messages as dictionaries in the OpenAI format, without absent keys; the content of a
    message with images is a list of parts, and an image is `{"type": "image", "id": …}`."""
    return [
        {
            key: value
            for key, value in {**message.model_dump(), "content": _parts(message)}.items()
            if (value not in (None, [], "") or key == "content") and key != "images"
        }
        for message in trajectory.messages
    ]


def _parts(message: Message) -> str | list[dict[str, Any]]:
    if not message.images:
        return message.content
    first, *rest = message.content.split(IMAGE)
    parts: list[dict[str, Any]] = [{"type": "text", "text": first}]
    for image, text in zip(message.images, rest, strict=False):
        parts += [{"type": "image", "id": image}, {"type": "text", "text": text}]
    return [part for part in parts if part.get("text") != ""]


def shared_start(trajectories: list[list[Message]]) -> int:
    """Return the number of leading messages that all trajectories share. If that is all of the
    shortest one, count only those before the first completion."""
    first = trajectories[0]
    equal = (len(set(map(_dumped, column))) == 1 for column in zip(*trajectories, strict=False))
    count = sum(1 for _ in takewhile(bool, equal))
    if count == min(map(len, trajectories)):
        count = sum(1 for _ in takewhile(lambda m: m.role != "assistant", first[:count]))
    return count


def _dumped(message: Message) -> str:
    return message.model_dump_json()


def _head(message: Message) -> str:
    name = f" {message.name}" if message.name else ""
    answer = f" (answer to {message.tool_call_id})" if message.tool_call_id else ""
    return f"[{message.role}{name}{answer}]"


def _words(message: Message, reasoning: bool) -> str:
    parts = [message.content] if message.content else []
    if reasoning and message.reasoning:
        parts.insert(0, f"(reasoning) {message.reasoning}\n(end of reasoning)")
    for call in message.tool_calls:
        function = call.get("function", {})
        arguments = function.get("arguments", "")
        if not isinstance(arguments, str):
            arguments = json.dumps(arguments, ensure_ascii=False)
        parts.append(f"→ calls {function.get('name', '?')}({arguments}) as {call.get('id', '?')}")
    return "\n".join(parts) or "(nothing)"


def _size(heads: list[str], texts: list[str], share: int) -> int:
    kept = sum(min(len(text), share + 40) for text in texts)
    return kept + sum(len(head) + 2 for head in heads)
