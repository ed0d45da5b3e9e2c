"""Places in a text that a filter's searches match, for marks (pure functions)."""

import re
import unicodedata
from collections.abc import Iterable

from engine.protocol.requests.filters import TextSearch

_START, _END = r"(?<![^\W_])", r"(?![^\W_])"
"""Boundaries of a word: letters and digits, as in the search index."""


def pattern_of_searches(
    searches: Iterable[TextSearch], field: str = "text"
) -> re.Pattern[str] | None:
    """Pattern of everything that the searches of a filter match in `field` (`prompt`, `answer` or
    `call`; `text`: only searches of the whole text); None if there is nothing to match."""
    found = [_pattern(one) for one in searches if one.field in ("text", field)]
    parts = [one for one in found if one]
    return re.compile("|".join(parts), re.IGNORECASE) if parts else None


def _pattern(search: TextSearch) -> str:
    words = [re.escape(word) for word in re.findall(r"[^\W_]+", folded(search.words))]
    if not words:
        return ""
    if search.phrase:
        return _START + r"[\W_]+".join(words) + _END
    whole = [f"{_START}{word}{_END}" for word in words[:-1]]
    return "|".join([*whole, rf"{_START}{words[-1]}[^\W_]*"])


def hits(pattern: re.Pattern[str] | None, text: str) -> list[tuple[int, int]]:
    """Return the half-open character ranges that match, ignoring accents as the search does; none
    for the pattern None."""
    if pattern is None:
        return []
    return [found.span() for found in pattern.finditer(folded(text))]


def folded(text: str) -> str:
    """Replace letters with accents by the letters below them; the length is unchanged."""
    return text if text.isascii() else "".join(map(_base, text))


def _base(letter: str) -> str:
    return letter if letter.isascii() else unicodedata.normalize("NFD", letter)[0]
