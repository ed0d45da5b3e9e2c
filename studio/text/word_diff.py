"""Word-level difference of two texts. Pure and bounded: long texts are compared by lines, and
anything beyond the bound counts as different."""

import re
from difflib import SequenceMatcher

_WORDS = re.compile(r"\s+|\w+(?:[:.\-/@]\w+)*|[^\w\s]")
_TAIL = re.compile(r"(?:[:.\-/@]?\w+)+")
WORDS_MOST, LINES_MOST = 3000, 2000

Range = tuple[int, int]


def differing(left: str, right: str) -> tuple[list[Range], list[Range]]:
    """Return the character ranges (start, end) of each text that differ from the other."""
    if left == right:
        return [], []
    start = _common(left, right)
    start = max(0, left.rfind(" ", 0, start), left.rfind("\n", 0, start))  # beginning of a word
    end = _without_first_word(left, _common(left[start:][::-1], right[start:][::-1]))
    middle = left[start : len(left) - end], right[start : len(right) - end]
    pieces = [_WORDS.findall(text) for text in middle]
    if max(map(len, pieces)) > WORDS_MOST:
        pieces = [text.splitlines(keepends=True) for text in middle]
        if max(map(len, pieces)) > LINES_MOST:
            return _whole(middle[0], start), _whole(middle[1], start)
    return _ranges(pieces[0], pieces[1], start)


def _whole(text: str, start: int) -> list[Range]:
    return [(start, start + len(text))] if text else []


def _without_first_word(text: str, end: int) -> int:
    """Shorten a common suffix of `end` characters to begin at a word; return its length."""
    cut = _TAIL.match(text, len(text) - end)
    return len(text) - cut.end() if cut else end


def _common(left: str, right: str) -> int:
    """Return the length of the common prefix, by bisection, since slices compare quickly."""
    low, high = 0, min(len(left), len(right))
    while low < high:
        half = (low + high + 1) // 2
        if left[low:half] == right[low:half]:
            low = half
        else:
            high = half - 1
    return low


def _ranges(left: list[str], right: list[str], start: int) -> tuple[list[Range], list[Range]]:
    ranges: tuple[list[Range], list[Range]] = ([], [])
    ends = _ends(left, start), _ends(right, start)
    for kind, a, b, c, d in SequenceMatcher(None, left, right).get_opcodes():
        if kind != "equal":
            for side, (first, last) in enumerate(((a, b), (c, d))):
                if last > first:
                    ranges[side].append((ends[side][first], ends[side][last]))
    return ranges


def _ends(pieces: list[str], start: int) -> list[int]:
    places = [start]
    for piece in pieces:
        places.append(places[-1] + len(piece))
    return places
