"""Finding a quoted passage in what a transcript shows, whatever the white space. Pure."""

import re
from collections.abc import Sequence

from studio.widgets.transcript_items import Item, Message, Note, Outcome, plain

LONGEST_QUOTE = 2000


def pattern_of(quote: str) -> re.Pattern[str] | None:
    """Matches the words of a quote in order; None for a quote without words."""
    words = plain(quote[:LONGEST_QUOTE]).split()
    return re.compile(r"\s+".join(map(re.escape, words)), re.IGNORECASE) if words else None


def texts_of(item: Item) -> list[str]:
    """The texts that a row shows."""
    if isinstance(item, (Note, Outcome)):
        return []
    said = "".join(token.text for token in item.tokens)
    if isinstance(item, Message):
        return [said or item.text]
    return [said or item.arguments, item.result]


def find_row(items: Sequence[Item], quote: str) -> tuple[int, int]:
    """The first row that has the passage and the line it begins in; (-1, 0) where none has."""
    pattern = pattern_of(quote)
    if pattern is not None:
        for row, item in enumerate(items):
            for text in texts_of(item):
                shown = plain(text)
                if found := pattern.search(shown):
                    return row, shown.count("\n", 0, found.start())
    return -1, 0
