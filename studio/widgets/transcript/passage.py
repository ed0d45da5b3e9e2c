"""Search for a quoted passage in a transcript, ignoring differences in white space. Pure."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from studio.widgets.transcript.items import Item, Message, Note, Outcome, break_long_lines, plain

LONGEST_QUOTE = 2000


def pattern_of(quote: str) -> re.Pattern[str] | None:
    """Pattern that matches the words of a quote in order; None for a quote without words."""
    words = plain(quote[:LONGEST_QUOTE]).split()
    return re.compile(r"\s+".join(map(re.escape, words)), re.IGNORECASE) if words else None


def texts_of(item: Item) -> list[str]:
    """Texts displayed by a row, in the order of its blocks, such as arguments and result of a tool
    call; empty for notes."""
    if isinstance(item, (Note, Outcome)):
        return []
    tokens_text = "".join(token.text for token in item.tokens)
    if isinstance(item, Message):
        reasoning = "".join(token.text for token in item.reasoning_tokens) or item.reasoning
        return [*([reasoning] if reasoning else []), tokens_text or item.text]
    return [tokens_text or item.arguments, item.result]


class Found(NamedTuple):
    """Location of a passage: its row, the number of lines and characters that must be laid out to
    show it, and the block of text in the row."""

    row: int
    lines: int = 0
    chars: int = 0
    block: int = 0


def find_row(items: Sequence[Item], quote: str) -> Found:
    """Return the first row that contains a quote, and how many lines and characters of it must be
    laid out to show the quote; row -1 if there is none."""
    pattern = pattern_of(quote)
    if pattern is not None:
        for row, item in enumerate(items):
            for block, text in enumerate(texts_of(item)):
                shown = plain(text)
                if found := pattern.search(shown):
                    end = found.end()
                    lines = break_long_lines(shown[:end]).count("\n") + 1
                    return Found(row, lines, end, block)
    return Found(-1)
