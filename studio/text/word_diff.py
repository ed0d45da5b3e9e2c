"""Word-level difference of two texts. Pure and bounded: long texts are compared by lines, and
anything beyond the bound counts as different."""

import re
from difflib import SequenceMatcher

_WORDS = re.compile(r"\s+|\w+(?:[:.\-/@]\w+)*|[^\w\s]")
_TAIL = re.compile(r"(?:[:.\-/@]?\w+)+")
WORDS_MOST, LINES_MOST = 3000, 2000

Range = tuple[int, int]


def differing(left: str, right: str) -> tuple[list[Range], list[Range]]:
    """Character ranges of each text that differ from the other."""
    start = _common(left, right)
    start = max(0, left.rfind(" ", 0, start), left.rfind("\n", 0, start))  # beginning of a word
    end = _common(left[start:][::-1], right[start:][::-1])
    middle = left[start : len(left) - end], right[start : len(right) - end]
    if not any(middle):
        return [], []
    end = _whole_words(middle, left[len(left) - end :])
    middle = left[start : len(left) - end], right[start : len(right) - end]
    pieces = [_WORDS.findall(text) for text in middle]
    if max(map(len, pieces)) > WORDS_MOST:
        pieces = [text.splitlines(keepends=True) for text in middle]
    if max(map(len, pieces)) > LINES_MOST:
        return [[(start, start + len(text))] if text else [] for text in middle]  # type: ignore[return-value]
    return _ranges(pieces[0], pieces[1], start)


def _whole_words(middle: tuple[str, str], tail: str) -> int:
    """Length of the common tail without the word in which it begins."""
    inside = any(text and not text[-1].isspace() for text in middle)
    cut = _TAIL.match(tail) if inside else None
    return len(tail) - (cut.end() if cut else 0)


def _common(left: str, right: str) -> int:
    """Length of the common prefix, by bisection, since slices compare quickly."""
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
                    _add(ranges[side], (ends[side][first], ends[side][last]))
    return ranges


def _add(ranges: list[Range], new: Range) -> None:
    if ranges and new[0] <= ranges[-1][1]:
        ranges[-1] = (ranges[-1][0], new[1])
    else:
        ranges.append(new)


def _ends(pieces: list[str], start: int) -> list[int]:
    places = [start]
    for piece in pieces:
        places.append(places[-1] + len(piece))
    return places
