"""Alignment of two trajectories by turn (pure functions)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import takewhile, zip_longest

from engine.protocol.records.conversations import Message, in_text
from engine.protocol.records.runs import Trajectory
from studio.pages.trajectories.reader.transcript_rows import call_words
from studio.widgets.transcript.side_by_side import PairRow, Side

TURNS_MOST = 400
"""Maximum number of turns to align; beyond it, turns are paired by index."""


@dataclass(frozen=True)
class _Turn:
    number: int
    reply: Message
    results: tuple[Message, ...]

    def signature(self) -> tuple[str, ...]:
        """Return the key by which turns are matched: tool names and whether there is text."""
        content_kind = "words" if self.reply.content.strip() else ""
        return (content_kind, *(call_words(call)[0] for call in self.reply.tool_calls))


def rows_of(left: Trajectory, right: Trajectory) -> list[PairRow]:
    """Return the rows of a side-by-side view: messages before the first turn, then paired turns."""
    shown = [in_text(one.messages) for one in (left, right)]
    before = [list(takewhile(_before_turns, messages)) for messages in shown]
    rows = [
        PairRow(*(Side(_role(m), m.content, "system" if m else "") if m else None for m in pair))
        for pair in zip_longest(*before)
    ]
    for first, second in _aligned(*map(_turns, shown)):
        rows += _turn_rows(first, second)
    return rows


def differences(rows: Sequence[PairRow]) -> list[int]:
    """Return the indices of rows with different sides."""
    return [place for place, row in enumerate(rows) if not row.same]


def _before_turns(message: Message) -> bool:
    return message.role != "assistant"


def _role(message: Message) -> str:
    return {"system": "System", "user": "User"}.get(message.role, message.role.capitalize())


def _turns(messages: Sequence[Message]) -> list[_Turn]:
    turns: list[tuple[Message, list[Message]]] = []
    for message in messages:
        if message.role == "assistant":
            turns.append((message, []))
        elif turns:
            turns[-1][1].append(message)
    return [_Turn(i, reply, tuple(results)) for i, (reply, results) in enumerate(turns, 1)]


def _aligned(left: list[_Turn], right: list[_Turn]) -> Iterator[tuple[_Turn | None, _Turn | None]]:
    if max(len(left), len(right)) > TURNS_MOST:
        yield from zip_longest(left, right)
        return
    matcher = SequenceMatcher(
        None, [t.signature() for t in left], [t.signature() for t in right], autojunk=False
    )
    for _, a, b, c, d in matcher.get_opcodes():
        yield from zip_longest(left[a:b], right[c:d])


def _turn_rows(left: _Turn | None, right: _Turn | None) -> list[PairRow]:
    return [PairRow(*pair) for pair in zip_longest(_sides(left), _sides(right))]


def _sides(turn: _Turn | None) -> list[Side]:
    if turn is None:
        return []
    sides = [Side(f"Turn {turn.number}", turn.reply.content, "turn")]
    results = {message.tool_call_id: message for message in turn.results}
    for call in turn.reply.tool_calls:
        name, arguments = call_words(call)
        sides.append(Side(name, arguments, "call"))
        if (result := results.pop(call.get("id"), None)) is not None:
            sides.append(Side("", result.content, "result"))
    sides += [Side(_role(message), message.content, "result") for message in results.values()]
    return sides
