"""Facts and searchable text of a trajectory, stored beside its record so that SQL can filter by
them and a table can show them without unpacking it."""

import json
from collections import Counter
from itertools import chain, takewhile
from statistics import fmean
from typing import Any, NamedTuple, NotRequired, cast

from typing_extensions import TypedDict

from engine.protocol.records.conversations import IMAGE, Message
from engine.protocol.records.runs import Trajectory
from engine.protocol.requests.filters import is_error_result
from engine.protocol.requests.runs import TrajectoryFacts

EXCERPT_CHARS = 240
BREAK = "\n\ue000\n"
"""Text between messages in the search index: a word of its own, so that no phrase spans two."""
MOST_TOOLS = 200
"""Largest number of different tools that are counted for one trajectory."""


class SearchedMessage(TypedDict):
    role: str
    content: str
    reasoning: NotRequired[str]
    tool_calls: list[dict[str, Any]]


class SearchedConversation(TypedDict):
    messages: list[SearchedMessage]


class SearchedProblem(TypedDict):
    message: str


class SearchedRecord(TypedDict):
    """Fields of a trajectory that a search covers."""

    title: str
    scenario_id: str
    problem: SearchedProblem | None
    messages: list[SearchedMessage]
    conversations: NotRequired[list[SearchedConversation]]


class SearchText(NamedTuple):
    """Columns of the search index."""

    prompt: str
    """System and user messages, and those of other roles that the model reads."""
    answer: str
    """Messages of the model with their reasoning, without tool calls."""
    call: str
    """Names and arguments of tool calls, and their results."""
    about: str
    """Title, id of the scenario, and why the trajectory is unscored."""


def search_text(record: SearchedRecord) -> SearchText:
    """Return the searchable text of a trajectory by column."""
    prompt: list[str] = []
    answer: list[str] = []
    call: list[str] = []
    others = (one["messages"] for one in record.get("conversations", ()))
    for message in chain(record["messages"], *others):
        role = message["role"]
        column = answer if role == "assistant" else call if role == "tool" else prompt
        if reasoning := message.get("reasoning"):
            column.append(reasoning)
        column.append(message["content"])
        call += [str(one.get("function", {})) for one in message["tool_calls"]]
    about = [record["title"], record["scenario_id"]]
    if record["problem"]:
        about.append(record["problem"]["message"])
    return SearchText(*map(_joined, (prompt, answer, call, about)))


def _joined(parts: list[str]) -> str:
    return BREAK.join(parts).replace("\0", " ")  # JSON functions of SQLite end at a zero


def search_text_of(trajectory: Trajectory) -> SearchText:
    fields = set(SearchedRecord.__annotations__)
    return search_text(cast(SearchedRecord, trajectory.model_dump(include=fields)))


def facts_of(trajectory: Trajectory) -> TrajectoryFacts:
    """Return the values of a trajectory (counts, latency, first lines) that filters and tables
    use."""
    messages = trajectory.messages
    tools = Counter(_tool_name(call) for m in messages for call in m.tool_calls)
    seconds = [call.end_s - call.start_s for call in trajectory.model_calls if call.end_s]
    return TrajectoryFacts(
        prompt=_prompt(messages),
        answer=_answer(messages),
        tools=dict(tools.most_common(MOST_TOOLS)),
        tool_calls=tools.total(),
        tool_errors=sum(m.role == "tool" and is_error_result(m.content) for m in messages),
        metrics=trajectory.metrics,
        latency_s=fmean(seconds) if seconds else None,
    )


def _tool_name(call: dict[str, Any]) -> str:
    function = call.get("function")
    return str(function.get("name", ""))[:100] if isinstance(function, dict) else ""


def _prompt(messages: list[Message]) -> str:
    """Last message to the model before its first turn, on one line."""
    start = list(takewhile(lambda m: m.role != "assistant", messages))
    prompts = [m.content for m in start if m.role == "user"] or [m.content for m in start]
    return _excerpt(prompts[-1]) if prompts else ""


def _answer(messages: list[Message]) -> str:
    """First line of the last answer of the model; its tool call if it has no text."""
    for message in reversed(messages):
        if message.role == "assistant":
            lines = message.content.strip().splitlines()
            calls = [json.dumps(call.get("function"))[:1000] for call in message.tool_calls[:1]]
            return _excerpt((lines or calls or [""])[0])
    return ""


def _excerpt(text: str) -> str:
    beginning = text[: 4 * EXCERPT_CHARS].replace("\0", " ").replace(IMAGE, " [image] ")
    return " ".join(beginning.split())[:EXCERPT_CHARS]
