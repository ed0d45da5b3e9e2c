"""Grammar of filters: syntax trees, and one sentence with the place of a mistake."""

import pytest

from engine.protocol.problems import Refused
from engine.protocol.requests.filters import (
    DEEPEST,
    MOST_CHARS,
    MOST_CONDITIONS,
    And,
    Comparison,
    Match,
    Node,
    Not,
    Or,
    TextSearch,
    parse_filter,
    quoted,
    searches,
)

LOW = Comparison("reward", "<", 0.2)
LONG = Comparison("turns", ">", 3.0)
SEARCH = Match("tool", "search")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("  ", None),
        ("reward<0.2", LOW),
        ("Reward < 0.2 AND Turns > 3", And((LOW, LONG))),
        ("reward < 0.2 turns > 3", And((LOW, LONG))),
        ("reward < 0.2 or turns > 3 and tool:search", Or((LOW, And((LONG, SEARCH))))),
        ("not not turns > 3", Not(Not(LONG))),
        ("not (tool:search or turns > 3) reward < .2", And((Not(Or((SEARCH, LONG))), LOW))),
        ("step == -1e2", Comparison("step", "=", -100.0)),
        ("part.rules >= 1", Comparison("part", ">=", 1.0, "rules")),
        ('metric."my moves" != 0', Comparison("metric", "!=", 0.0, "my moves")),
        ("metric.art/usd > 0", Comparison("metric", ">", 0.0, "art/usd")),
        ('tool:"a \\"b\\" \\\\"', Match("tool", 'a "b" \\')),
        ("is:Unscored", Match("is", "unscored")),
        ("late visa 12:30", TextSearch("text", "late visa 12:30")),
        ("visa turns > 3", And((TextSearch("text", "visa"), LONG))),
        ("“no refund”", TextSearch("text", "no refund", phrase=True)),
        ('prompt:"a b"', TextSearch("prompt", "a b", phrase=True)),
        ("answer:ref", TextSearch("answer", "ref")),
    ],
)
def test_expressions_are_parsed(text: str, expected: Node | None) -> None:
    assert parse_filter(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("turns > 3 and", "After `and`, a condition is missing (character 14)."),
        ("or turns > 3", "A condition is missing (character 1)."),
        ("turns > 3 or )", "After `or`, a condition is missing (character 13)."),
        ("()", "After `(`, a condition is missing (character 2)."),
        ("not", "After `not`, a condition is missing (character 4)."),
        ("(turns > 3", "The parenthesis is not closed (character 1)."),
        ("turns > 3)", "The closing parenthesis has no opening one (character 10)."),
        ('a text:"b', "The quotation mark is not closed (character 8)."),
        ("turns >", "After `>`, a number is missing (character 8)."),
        ("turns > and", "After `>`, a number is missing (character 8)."),
        ("turns > many", "`many` is not a number (character 9)."),
        ("turns > nan", "`nan` is not a number (character 9)."),
        ("turns > 1_0", "`1_0` is not a number (character 9)."),
        ("> 3", "Before `>`, a field is missing (character 1)."),
        ("reward:0.2", "`reward` takes a comparison, as in `reward > 3` (character 1)."),
        ("tool = search", "`tool` takes a colon, as in `tool:value` (character 1)."),
        ("tool:", "After `tool:`, a value is missing (character 6)."),
        ("is:late", "`is:late` is unknown (character 1)."),
        ("text:---", "`---` has no letter or digit to search for (character 1)."),
        ('metric."a"', 'After `metric.a`, a comparison is missing (character 8).'),
    ],
)  # fmt: skip
def test_mistakes_are_named_with_their_place(text: str, message: str) -> None:
    with pytest.raises(Refused) as raised:
        parse_filter(text)
    assert raised.value.problem.message == message


def test_unknown_fields_name_the_close_ones() -> None:
    with pytest.raises(Refused) as raised:
        parse_filter("turns > 1 and rewards < 0.2")
    assert raised.value.problem.message == "`rewards` is not a field (character 15)."
    assert raised.value.problem.hint == "Did you mean `reward`?"
    with pytest.raises(Refused, match="Put text to search for in double quotes"):
        parse_filter("https://example.org")


def test_limits_of_length_depth_and_conditions() -> None:
    for text, message in (
        ("x" * (MOST_CHARS + 1), "more than"),
        ("(" * (DEEPEST + 1) + "a", "nested too deeply"),
        ("is:scored " * (MOST_CONDITIONS + 1), "more than"),
    ):
        with pytest.raises(Refused, match=message):
            parse_filter(text)
    assert parse_filter("(" * DEEPEST + "a" + ")" * DEEPEST) == TextSearch("text", "a")


def test_searches_are_those_that_a_match_contains() -> None:
    node = parse_filter('visa and (not text:"no" or prompt:"a b") turns > 1')
    assert searches(node) == [TextSearch("text", "visa"), TextSearch("prompt", "a b", True)]


@pytest.mark.parametrize("value", ["search", "a b", 'say "no" \\', "(x)", "art/usd", ""])
def test_quoted_values_are_read_back(value: str) -> None:
    if value:
        assert parse_filter(f"tool:{quoted(value)}") == Match("tool", value)
