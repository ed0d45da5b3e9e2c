"""Completion of filters: what may follow at the cursor, and what is inserted."""

import pytest

from engine.protocol.requests.filters import parse_filter
from engine.protocol.requests.runs import FilterNames
from studio.pages.trajectories.filters.completion import complete

NAMES = FilterNames(
    parts=["rules", "my part"], metrics=["moves"], tools=["search", "mail box"], labels=["best"]
)


def offered(text: str) -> list[str]:
    return [one.words for one in complete(text, len(text), NAMES).suggestions]


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("re", ["reward"]),
        ("tur", ["turns"]),
        ("tool", ["tool_calls", "tool_errors", "tool:"]),
        ("(not sc", ["scenario:"]),
        ("reward ", ["<", "<=", ">", ">=", "=", "!="]),
        ("part.rules ", ["<"]),
        ('metric."my x" ', ["<"]),
        ("reward <", []),
        ("reward < 0.2 ", ["and", "or"]),
        ("reward < 0.2 a", ["and", "advantage", "answer:"]),
        ("reward < 0.2 and ", ["reward"]),
        ("tool:", ["search", "mail box"]),
        ("tool:se", ["search"]),
        ('tool:"mail b', ["mail box"]),
        ("tool:search", []),
        ("is:un", ["unscored"]),
        ("part.", ["rules", "my part"]),
        ('part."my', ["my part"]),
        ("label:b", ["best"]),
        ('text:"anything', []),
        ("metric.mov", ["moves"]),
        ('"closed" ', ["and"]),
    ],
)
def test_suggestions_at_the_end(text: str, first: list[str]) -> None:
    found = offered(text)
    assert found[: len(first)] == first
    assert first or not found


@pytest.mark.parametrize(
    ("text", "cursor", "words", "expected"),
    [
        ("tur > 3", 3, "turns", "turns > 3"),
        ("tool:sea and turns > 3", 8, "search", "tool:search and turns > 3"),
        ('is:scored tool:"mai', 19, "mail box", 'is:scored tool:"mail box" '),
        ("part.my", 7, "my part", 'part."my part" '),
        ("an", 2, "answer:", 'answer:"'),
    ],
)
def test_inserted_suggestion_replaces_the_word(
    text: str, cursor: int, words: str, expected: str
) -> None:
    completion = complete(text, cursor, NAMES)
    chosen = next(one for one in completion.suggestions if one.words == words)
    changed, place = completion.applied(text, cursor, chosen)
    assert changed == expected
    assert changed[:place].endswith(chosen.insert)


def test_walk_through_suggestions_makes_a_valid_filter() -> None:
    text, cursor = "", 0
    for words in ("not", "tool:", "mail box", "or", "part.my part", ">="):
        completion = complete(text, cursor, NAMES)
        chosen = next(one for one in completion.suggestions if one.words == words)
        text, cursor = completion.applied(text, cursor, chosen)
    assert parse_filter(f"{text}0.5") is not None
    assert text == 'not tool:"mail box" or part."my part" >= '
