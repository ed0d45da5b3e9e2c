"""Completion of filter expressions at the cursor (pure functions)."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from engine.protocol.problems import Refused
from engine.protocol.requests.filters import (
    FAMILIES,
    NAMES,
    NUMBERS,
    OPERATORS,
    SPLITS,
    STATES,
    TEXTS,
    quoted,
    tokens_of,
)
from engine.protocol.requests.runs import FilterNames

MOST = 40
LABELS = ("best", "worst", "veto", "exclude", "gold", "flag", "note", "score", "order", "field")
JOINS = {"and": "both conditions", "or": "at least one of the conditions"}
OPERATOR_WORDS = dict(
    zip(
        OPERATORS,
        ("less than", "at most", "greater than", "at least", "equal to", "not equal to"),
        strict=True,
    )
)
_TAIL = re.compile(r'[^\s()<>=!"]*$')
_FIELD_BEFORE_QUOTE = re.compile(r"([A-Za-z_]+)([:.])$")


@dataclass(frozen=True)
class Suggestion:
    """Suggested continuation: the text to insert, and what it means."""

    insert: str
    words: str
    help: str = ""


@dataclass(frozen=True)
class Completion:
    """Suggestions that replace the text from `start` to the cursor."""

    start: int
    suggestions: tuple[Suggestion, ...] = ()

    def applied(self, text: str, cursor: int, suggestion: Suggestion) -> tuple[str, int]:
        """Return the filter text with a suggestion in place of the part before the cursor that it
        completes, and the new cursor."""
        rest = text[cursor:]
        if suggestion.insert.endswith(" ") and rest[:1] == " ":
            rest = rest[1:]
        before = text[: self.start] + suggestion.insert
        return before + rest, len(before)


def complete(text: str, cursor: int, names: FilterNames) -> Completion:
    """Return suggestions that complete the filter expression `text` at the cursor (a character
    index). `names` are those that occur in the run, such as tools."""
    before = text[:cursor]
    quotes = [found.start() for found in re.finditer(r'(?<!\\)"', before)]
    if len(quotes) % 2:
        return _in_quotes(before, quotes[-1], names)
    found = _TAIL.search(before)
    start = found.start() if found else cursor
    word = before[start:]
    field, separator, value = word.partition(":")
    if separator:
        return _matching(start, value, _values(field.lower(), names), f"{field}:")
    family, separator, name = word.partition(".")
    if separator and family.lower() in FAMILIES:
        return _matching(start, name, _family(family.lower(), names), f"{family}.", " ")
    return _matching(start, word, list(_starts(before[:start], names)))


def _in_quotes(before: str, quote: int, names: FilterNames) -> Completion:
    known = _FIELD_BEFORE_QUOTE.search(before[:quote])
    if known is None:
        return Completion(quote)
    field, separator = known.groups()
    values = _values if separator == ":" else _family
    return _matching(known.start(), before[quote + 1 :], values(field.lower(), names), known[0])


def _values(field: str, names: FilterNames) -> list[Suggestion]:
    """Values of a field, without the field."""
    known: dict[str, Iterable[str]] = {
        "tool": names.tools,
        "scenario": names.scenarios,
        "label": dict.fromkeys([*names.labels, *LABELS]),
        "model": names.models,
        "split": SPLITS,
    }
    if field == "is":
        return [Suggestion(state, state, words) for state, words in STATES.items()]
    return [Suggestion(quoted(name), name) for name in known.get(field, ())]


def _family(family: str, names: FilterNames) -> list[Suggestion]:
    occurring = {"part": names.parts, "metric": names.metrics}.get(family, [])
    return [Suggestion(quoted(name), name) for name in occurring]


def _starts(before: str, names: FilterNames) -> Iterator[Suggestion]:
    """Suggest what may begin after the text before the current word."""
    try:
        tokens = list(tokens_of(before))
    except Refused:
        return
    last = tokens[-1] if tokens else None
    if last is not None and last.kind == "operator":
        return
    if last is not None and _is_number(before.rstrip()):
        for operator, words in OPERATOR_WORDS.items():
            yield Suggestion(f"{operator} ", operator, words)
        return
    ends = last is not None and last.kind != "(" and last.text.lower() not in ("and", "or", "not")
    if ends:
        yield from (Suggestion(f"{word} ", word, words) for word, words in JOINS.items())
    yield from (Suggestion(f"{name} ", name, words) for name, words in NUMBERS.items())
    for family, words in FAMILIES.items():
        occurring = _family(family, names)
        yield from (Suggestion(f"{family}.{s.insert} ", f"{family}.{s.words}", words)
                    for s in occurring)  # fmt: skip
    for name, words in NAMES.items():
        yield Suggestion(f'{name}:"' if name in TEXTS else f"{name}:", f"{name}:", words)
    yield Suggestion("not ", "not", "negates the next condition")


def _is_number(before: str) -> bool:
    """Whether a text ends with a field that is compared with a figure."""
    word = before.split()[-1].lstrip("(").lower()
    named = re.search(r'(part|metric)\.("[^"]*"|[^\s"]+)$', before, re.IGNORECASE)
    return bool(named) or word in NUMBERS


def _matching(
    start: int, typed: str, values: list[Suggestion], prefix: str = "", suffix: str = " "
) -> Completion:
    """Suggestions that begin with what was typed, then those that contain it."""
    low = typed.lower().strip('"')
    first = [one for one in values if one.words.lower().startswith(low)]
    later = [one for one in values if low in one.words.lower() and one not in first] if low else []
    ending = suffix if prefix else ""
    found = [Suggestion(prefix + s.insert + ending, s.words, s.help) for s in (*first, *later)]
    if len(found) == 1 and found[0].words == typed:
        found = []
    return Completion(start, tuple(found[:MOST]))
