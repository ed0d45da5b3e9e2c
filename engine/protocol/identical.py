"""Identical trajectories of a group: a person or a judge needs to read each text only once."""

from collections.abc import Iterable

from engine.protocol.records.conversations import Message
from engine.protocol.records.runs import Trajectory


def first_of_identical(siblings: Iterable[Trajectory]) -> dict[str, str]:
    """Map each trajectory's id to the id of the first trajectory with the same messages (its own id
    if there is no earlier one). Ids of tool calls, which are random, are ignored."""
    first: dict[str, str] = {}
    seen: dict[tuple[str, ...], str] = {}
    for one in siblings:
        text = tuple(_text(message) for message in one.messages)
        first[one.id] = seen.setdefault(text, one.id)
    return first


def _text(message: Message) -> str:
    calls = [{key: call[key] for key in call if key != "id"} for call in message.tool_calls]
    return message.model_copy(update={"tool_calls": calls, "tool_call_id": None}).model_dump_json()
