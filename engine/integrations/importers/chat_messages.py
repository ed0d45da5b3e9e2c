"""Conversion of chat messages from files of other tools. Invalid values raise one of `WRONG`."""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from engine.protocol.problems import ConfigError, Problem
from engine.protocol.records.conversations import Message
from engine.protocol.records.runs import Split, Trajectory
from engine.runtime.text import replace_surrogates


class Conversation(NamedTuple):
    """Messages in order, with details from the choices among them."""

    messages: list[Message]
    truncated: bool
    """Whether an answer reached its token limit."""
    tokens: int
    """Number of sampled tokens with stored log-probabilities."""


def message_of(data: dict[str, Any]) -> Message:
    """Convert a message from the OpenAI format. Content parts are joined as text; missing content
    becomes an empty string."""
    content = data.get("content") or ""
    if isinstance(content, list):
        content = "".join(_part(part) for part in content)
    plain = {**data, "content": content, "tool_calls": data.get("tool_calls") or []}
    return Message.model_validate(plain)


def conversation(items: list[dict[str, Any]]) -> Conversation:
    """Build a conversation from a list that mixes messages and choices of chat completions, in
    order."""
    messages, truncated, tokens = [], False, 0
    for item in items:
        if "finish_reason" in item:
            truncated = truncated or item["finish_reason"] == "length"
            tokens += len((item.get("logprobs") or {}).get("content") or [])
            item = {**item["message"], "role": item["message"].get("role") or "assistant"}
        messages.append(message_of(item))
    return Conversation(messages, truncated, tokens)


def beginning_of(messages: list[Message]) -> list[Message]:
    """Messages before the first answer."""
    roles = [message.role for message in messages]
    return messages[: roles.index("assistant")] if "assistant" in roles else messages


def tools_of(data: Any) -> list[dict[str, Any]]:
    """Tool definitions as a list; empty if there are none. Raises ValueError for other values."""
    tools = data or []
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise ValueError("`tools` is not a list of objects")
    return tools


def conversations_of_calls(
    exchanges: dict[str, Any],
) -> tuple[list[Conversation], list[dict[str, Any]]]:
    """Merge captured model calls (`exchanges`, by API), ordered by end time, into conversations; a
    call whose messages begin a later one is part of that. Also returns the tools of the last
    call."""
    foreign = [name for name in ("responses", "messages") if exchanges.get(name)]
    if foreign:
        raise ValueError(f"model calls captured with the {foreign[0]} API cannot be read yet")
    calls = [(one["end_time"], _chat(one)) for one in exchanges.get("chat_completions") or []]
    calls += [(one["end_time"], _text(one)) for one in exchanges.get("completions") or []]
    calls.sort(key=lambda call: str(call[0]))
    found = [conversation(items) for _, items in calls]
    whole = [
        one
        for number, one in enumerate(found)
        if not any(_begins(one, later) for later in found[number + 1 :])
    ]
    if whole:  # what was sampled for a part of it was sampled for it
        before = sum(one.tokens for one in whole[:-1])
        rest = sum(one.tokens for one in found) - before
        whole[-1] = whole[-1]._replace(tokens=rest)
    chats = exchanges.get("chat_completions") or []
    last = max(chats, key=lambda one: str(one["end_time"]), default=None)
    return whole, tools_of(last["request"].get("tools")) if last else []


def as_text(messages: list[Message]) -> str:
    return "\n".join(
        " ".join([f"{one.role}:", one.content, *map(str, one.tool_calls)]) for one in messages
    )


def _part(part: dict[str, Any]) -> str:
    text = part.get("text")
    return text if isinstance(text, str) else f"[{part.get('type', 'part')}]"


def _chat(call: dict[str, Any]) -> list[dict[str, Any]]:
    return [*call["request"]["messages"], call["response"]["choices"][0]]


def _text(call: dict[str, Any]) -> list[dict[str, Any]]:
    choice = call["response"]["choices"][0]
    prompt = {"role": "user", "content": call["request"]["prompt"]}
    reply = {"role": "assistant", "content": choice["text"]}
    return [prompt, {"finish_reason": choice.get("finish_reason"), "message": reply}]


def _begins(one: Conversation, other: Conversation) -> bool:
    mine = [(m.role, m.content, m.tool_calls) for m in one.messages]
    theirs = [(m.role, m.content, m.tool_calls) for m in other.messages]
    return theirs[: len(mine)] == mine


TITLE_CHARS = 80
WRONG = (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError, OverflowError)
"""Exceptions raised by reading a value of the wrong shape."""

UNREWARDED = Problem(
    code="judge.unrewarded",
    message="The imported file has no reward for this trajectory.",
    hint="Label the trajectory to set a reward.",
)
"""Problem of trajectories without reward. They can still be judged and labelled."""


class TrajectoryBatch(NamedTuple):
    """The groups of one split and step."""

    split: Split
    step: int
    groups: list[list[Trajectory]]
    dropped: int = 0
    """Number of skipped metrics that were not finite."""


class Source(NamedTuple):
    """Source of trajectories. `lots()` returns an iterator that reads batch by batch and must be
    closed."""

    name: str
    last: int
    """The last training step."""
    lots: Callable[[], Iterator[TrajectoryBatch]]
    notes: tuple[str, ...] = ()
    """Sentences about skipped content."""
    last_notes: Callable[[], tuple[str, ...]] = tuple
    """Returns further sentences once everything is read."""


def load_json(text: str) -> Any:
    """Parse JSON. Unpaired surrogates (of truncated output) become U+FFFD, to be storable."""
    return replace_surrogates(json.loads(text))


def id_of(split: Split, step: int, group: int, index: int) -> str:
    """Return the id of a trajectory in the form used by trained runs, such as `t00012-003-001`."""
    return f"{split[0]}{step:05d}-{group:03d}-{index:03d}"


def title_of(messages: list[Message], otherwise: str) -> str:
    """Return the beginning of the first user message, or `otherwise` if it is empty."""
    prompt = next((message.content for message in messages if message.role == "user"), "")
    return " ".join(prompt.split())[:TITLE_CHARS] or otherwise


def figures_of(metrics: Mapping[str, Any]) -> tuple[dict[str, float], int]:
    """Finite metrics by name, and the number of others. Raises ValueError for non-numbers."""
    figures = {}
    for name, value in metrics.items():
        if not isinstance(value, int | float):
            raise ValueError(f"the metric {name} is not a number: {value!r:.80}")
        figures[name] = float(value)
    finite = {name: value for name, value in figures.items() if math.isfinite(value)}
    return finite, len(figures) - len(finite)


def as_scored(one: Trajectory) -> Trajectory:
    """Return the trajectory as one that waits for no judge; without a reward it gets the problem
    UNREWARDED."""
    problem = one.problem or (UNREWARDED if one.reward is None else None)
    return one.model_copy(update={"awaits_judge": False, "problem": problem})


def as_awaiting_judge(one: Trajectory) -> Trajectory:
    """Return the trajectory as waiting for a judge if its only problem is a missing reward or judge
    score; else unchanged."""
    judges = UNREWARDED.code.partition(".")[0]  # asked and not answered, it can be asked again
    unrewarded = one.problem is not None and one.problem.code.partition(".")[0] == judges
    return one.model_copy(update={"awaits_judge": True, "problem": None}) if unrewarded else one


def empty_source(where: Path, hint: str) -> ConfigError:
    """Error for a readable source `where` without trajectories; `hint` says what to do."""
    return ConfigError.of(
        "attempts.none", "This file or folder has no trajectories.", hint, where=str(where)
    )
