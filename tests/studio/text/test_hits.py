"""Marks of a filter's text searches: the same words as the search index finds."""

import pytest

from engine.protocol.requests.filters import parse_filter, searches
from studio.text.hits import hits, pattern_of_searches
from studio.widgets.transcript.hits import Hit, find_hits
from studio.widgets.transcript.items import Message, Note, Token, ToolCall


@pytest.mark.parametrize(
    ("text", "field", "found"),
    [
        ("visa", "text", ["visa", "Visas"]),
        ("my visa", "text", ["my", "visa", "Visas"]),
        ('"visa"', "text", ["visa"]),
        ('text:"my visa"', "answer", ["my visa"]),
        ("prompt:cafe", "prompt", ["café"]),
        ("prompt:cafe", "answer", []),
        ("not visa turns > 3", "text", []),
    ],
)
def test_marked_words(text: str, field: str, found: list[str]) -> None:
    words = "In the café: my visa, not Visas_2 or advisa"
    pattern = pattern_of_searches(searches(parse_filter(text)), field)
    assert [words[start:end] for start, end in hits(pattern, words)] == found


def test_hits_are_in_order_and_told_apart_by_role() -> None:
    items = [
        Message("user", "refund"),
        Note("refund"),
        Message("assistant", "", tokens=[Token("re"), Token("fund refund")]),
        ToolCall("mail", "", "a\nb refund"),
    ]
    found = searches(parse_filter("answer:refund call:refund"))
    patterns = {kind: pattern_of_searches(found, kind) for kind in ("prompt", "answer", "call")}
    assert find_hits(items, patterns) == [
        Hit(2, 0, 0, 1, 6), Hit(2, 0, 1, 1, 13), Hit(3, 0, 0, 2, 10),
    ]  # fmt: skip
