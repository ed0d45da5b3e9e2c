"""Hits of a filter's text searches in a transcript. Pure."""

import bisect
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from studio.text.hits import hits
from studio.widgets.transcript.items import Item, Message, ToolCall, break_long_lines, plain
from studio.widgets.transcript.passage import texts_of

FARTHEST_CHARS = 300_000
"""Only this much of the beginning of a text is searched."""

Patterns = Mapping[str, re.Pattern[str] | None]
"""Pattern for each kind of text: prompt, answer, call."""


class Hit(NamedTuple):
    """Place of a hit: row, block of text in it, number within the block, and the number of lines
    and characters that must be laid out to show it."""

    row: int
    block: int
    nth: int
    lines: int
    chars: int


class HitCursor:
    """Hits of a transcript, and the current one."""

    def __init__(self) -> None:
        self.all: list[Hit] = []
        self.place = -1
        """Index of the current hit; -1 before the first step."""

    @property
    def current(self) -> Hit | None:
        return self.all[self.place] if self.place >= 0 else None

    def find(self, items: Sequence[Item], patterns: Patterns) -> None:
        """Find all matches in the rows anew (`patterns`: kind of text → pattern); none is current
        afterwards."""
        self.all, self.place = find_hits(items, patterns), -1

    def step(self, by: int, row: int) -> Hit | None:
        """Go to the next match (`by` -1: the previous one), wrapping around; if none is current, to
        the first at or below `row`. Returns it; None without matches."""
        count = len(self.all)
        if not count:
            return None
        if self.place < 0:
            first = bisect.bisect_left([hit.row for hit in self.all], max(0, row)) % count
            self.place = first if by > 0 else (first - 1) % count
        else:
            self.place = (self.place + by) % count
        return self.all[self.place]


def kind_of(item: Item) -> str:
    """Return the kind of text of a row: prompt, answer or call; empty if it is not searched."""
    if isinstance(item, ToolCall):
        return "call"
    if isinstance(item, Message):
        return "answer" if item.role == "assistant" else "prompt"
    return ""


def find_hits(items: Sequence[Item], patterns: Patterns) -> list[Hit]:
    """Return all matches in the rows, in reading order. `patterns`: kind of text → pattern."""
    found = []
    for row, item in enumerate(items):
        pattern = patterns.get(kind_of(item))
        texts = [text for text in texts_of(item) if text] if pattern else []
        for block, text in enumerate(texts):
            shown = plain(text[:FARTHEST_CHARS])
            for nth, (_, end) in enumerate(hits(pattern, shown)):
                lines = break_long_lines(shown[:end]).count("\n") + 1
                found.append(Hit(row, block, nth, lines, end))
    return found
