"""Replies: aligned by id, checked, never guessed."""

import json
import math
import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.judge.prompting.reply import (
    MOST_CHARS,
    MOST_QUOTES,
    MOST_REASON,
    Reading,
    RolloutScore,
    is_quoted,
    json_object,
    json_objects,
    read_art_reply,
    read_reply,
    without_reasoning,
)
from engine.protocol.records.judging import Criterion, Rubric

PLAIN = Rubric(source="be good", text="be good")
WEIGHTED = Rubric(
    source="w", text="w", criteria=(Criterion(name="right", weight=3), Criterion(name="short"))
)
IDS = ["BC", "DF", "GH"]


def reply(scores: dict[str, object]) -> str:
    return json.dumps(
        {"attempts": [{"id": name, "score": value} for name, value in scores.items()]}
    )


def test_a_whole_answer_in_any_order_is_aligned_by_id() -> None:
    found = read_reply(reply({"GH": 1, "BC": 0, "DF": 0.25}), IDS, PLAIN)
    assert not found.complaint
    assert {name: opinion.score for name, opinion in found.opinions.items()} == {
        "BC": 0,
        "DF": 0.25,
        "GH": 1,
    }


@pytest.mark.parametrize("value", [None, "0.5", True, [0.5]])
def test_what_is_no_number_is_no_score_of_that_attempt(value: object) -> None:
    found = read_reply(reply({"BC": value, "DF": 0.5, "GH": 0.5}), IDS, PLAIN)
    assert set(found.opinions) == {"DF", "GH"}
    assert "BC" in found.complaint


@pytest.mark.parametrize("value", [-0.01, 1.01, 7, math.nan, math.inf, 10**400])
def test_a_number_out_of_range_rejects_the_whole_reply(value: float) -> None:
    found = read_reply(reply({"BC": 1, "DF": value, "GH": 0.5}), IDS, PLAIN)
    assert not found.opinions
    assert found.complaint


def test_a_scale_of_ten_rejects_the_whole_reply() -> None:
    text = reply({"BC": 1, "DF": 0, "GH": 9})
    assert read_reply(text, IDS, PLAIN) == Reading(
        {}, "GH: the score is 9, but scores are numbers from 0 to 1.", "form"
    )


def test_missing_and_unknown_ones_are_named() -> None:
    entries = [{"id": n, "score": 0.5} for n in ("BC", "BC", "DF", "XX")]
    found = read_reply(json.dumps({"attempts": entries}), IDS, PLAIN)
    assert set(found.opinions) == {"BC", "DF"}
    for word in ("XX was not asked for", "GH is missing"):
        assert word in found.complaint


DRAFT, LAST = reply(dict.fromkeys(IDS, 0.1)), reply(dict.fromkeys(IDS, 0.9))


@pytest.mark.parametrize(
    "text",
    [
        f"{DRAFT}\n{LAST}",
        f"```json\n{DRAFT}\n```\nThinking again:\n```json\n{LAST}\n```",
        f"<think>maybe {DRAFT}",
        f"<think>maybe {DRAFT}</think> then <think> {LAST}",
        DRAFT[:-1] + f', "attempts": {json.dumps([{"id": n, "score": 0.9} for n in IDS])}}}',
        reply({"BC": 0.1, "DF": 0.5, "GH": 0.5})[:-2] + ', {"id": "BC", "score": 0.2}]}',
    ],
    ids=["two", "two fences", "unclosed", "opened again", "equal keys", "one scored twice"],
)
def test_drafts_and_contradictions_are_no_scores(text: str) -> None:
    found = read_reply(text, IDS, PLAIN)
    assert not found.opinions
    assert found.complaint


@pytest.mark.parametrize(("finish", "fault"), [("length", "cut"), ("content_filter", "filtered")])
def test_an_unfinished_reply_is_rejected_with_its_true_reason(finish: str, fault: str) -> None:
    for found in (read_reply(LAST, IDS, PLAIN, finish), read_art_reply(LAST, 3, finish)):
        assert not found.opinions
        assert found.fault == fault


def test_reasoning_is_not_an_answer_and_the_answer_behind_it_is() -> None:
    text = f"<think>at first {DRAFT}, on the other hand</think>\n{LAST}"
    assert {o.score for o in read_reply(text, IDS, PLAIN).opinions.values()} == {0.9}
    assert {o.score for o in read_reply(LAST + LAST, IDS, PLAIN).opinions.values()} == {0.9}


def test_depth_and_length_are_bounded() -> None:
    for text in ('{"attempts":' * 50_000, "[" * 100_000, '{"a":[' * 50_000, LAST + " " * 10**6):
        begun = time.perf_counter()
        assert not read_reply(text, IDS, PLAIN).opinions
        assert time.perf_counter() - begun < 5


@pytest.mark.parametrize(
    "wrapping",
    [
        "{}",
        "```json\n{}\n```",
        "Sure! {{not json}} here: {} Hope it helps.",
        "<think>{{}}</think>{}",
    ],
)
def test_json_is_found_within_prose(wrapping: str) -> None:
    text = wrapping.format(reply(dict.fromkeys(IDS, 0.5)))
    assert not read_reply(text, IDS, PLAIN).complaint


@pytest.mark.parametrize(
    "text", ["", "I cannot.", "[1, 2]", '{"attempts": 3}', '{"attempts": [{"id"']
)
def test_anything_else_is_a_complaint_and_no_score(text: str) -> None:
    found = read_reply(text, IDS, PLAIN)
    assert not found.opinions
    assert found.complaint


@given(st.text(max_size=200))
def test_no_text_whatever_raises_or_scores(text: str) -> None:
    assert not read_reply(text, IDS, PLAIN).opinions


def test_criteria_are_weighted_by_us() -> None:
    entry = {"id": "BC", "score": 0.9, "criteria": {"right": 1.0, "short": 0.0}}
    found = read_reply(json.dumps({"attempts": [entry]}), ["BC"], WEIGHTED)
    assert found.opinions["BC"].score == 0.75
    assert found.opinions["BC"].criteria == {"right": 1.0, "short": 0.0}
    half = json.dumps({"attempts": [{"id": "BC", "criteria": {"right": 1.0}}]})
    assert "short" in read_reply(half, ["BC"], WEIGHTED).complaint


def test_the_form_of_art_is_aligned_by_id_too() -> None:
    scores = [{"trajectory_id": str(n), "explanation": f"e{n}", "score": n / 4} for n in (3, 1, 2)]
    random.Random(0).shuffle(scores)
    found = read_art_reply(json.dumps({"scores": scores}), 3)
    assert {name: o.score for name, o in found.opinions.items()} == {"1": 0.25, "2": 0.5, "3": 0.75}
    assert "3 is missing" in read_art_reply(json.dumps({"scores": scores[:0]}), 3).complaint


def test_a_quote_must_be_there() -> None:
    assert is_quoted("the  Answer\nis 4", "So the answer is 4.")
    assert not is_quoted("the answer is 5", "So the answer is 4.")
    assert not is_quoted("  ", "anything")


def entries(*given: object) -> str:
    return json.dumps({"attempts": given})


def test_an_entry_is_read_whole() -> None:
    entry = {"id": "BC", "score": 1, "reason": "Right.", "quotes": ["a", 5, "b"]}
    found = read_reply(entries(entry), ["BC"], PLAIN)
    assert found == Reading({"BC": RolloutScore(1.0, "Right.", {}, ["a", "b"])}, "", "")
    assert isinstance(found.opinions["BC"].score, float)


@pytest.mark.parametrize(
    ("fields", "reason", "quotes"),
    [
        ({}, "", []),
        ({"reason": 5, "quotes": "a"}, "", []),
        ({"reason": "x" * (MOST_REASON + 1)}, "x" * MOST_REASON, []),
        ({"quotes": list("abcdef")}, "", list("abcdef")[:MOST_QUOTES]),
    ],
)
def test_reasons_and_quotes_are_bounded(
    fields: dict[str, object], reason: str, quotes: list[str]
) -> None:
    found = read_reply(entries({"id": "BC", "score": 0.5} | fields), ["BC"], PLAIN)
    assert found.opinions == {"BC": RolloutScore(0.5, reason, {}, quotes)}


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ([{"id": "BC"}], "BC: its score is not a number from 0 to 1"),
        ([], "BC is missing"),
        ([5], "an entry without id was not asked for; BC is missing"),
        ([{"score": 1}], "an entry without id was not asked for; BC is missing"),
        ([{"id": "x" * 21}], f"{'x' * 20} was not asked for; BC is missing"),
        (
            [{"id": "BC", "score": 0.5}, {"id": 7, "score": 0.5}, {"id": "BC", "score": 0.5}],
            "7 was not asked for",
        ),
        ([{"id": "BC"}, {"id": "BC"}], "BC: its score is not a number from 0 to 1"),
    ],
)
def test_complaints_name_every_fault(given: list[object], complaint: str) -> None:
    found = read_reply(entries(*given), ["BC"], PLAIN)
    assert found.complaint == f"The answer is invalid: {complaint}."
    assert found.fault == "form"
    assert set(found.opinions) <= {"BC"}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("I cannot.", "That was not a JSON object."),
        ('{"attempts": 3}', 'The object has no list "attempts".'),
        (f"{DRAFT} {LAST}", "There are 2 different answers, not one."),
        (
            entries({"id": "BC", "score": 0.5}, {"id": "BC", "score": 0.6}),
            "BC occurs twice, with different scores.",
        ),
        (
            entries({"id": "BC", "score": 0.5}, {"id": "BC"}),
            "BC occurs twice, with different scores.",
        ),
        (
            entries({"id": "BC", "score": -(10**30)}),
            "BC: the score is -1000000000000000000, but scores are numbers from 0 to 1.",
        ),
    ],
)
def test_a_reply_that_is_rejected_whole_says_why(text: str, complaint: str) -> None:
    assert read_reply(text, IDS, PLAIN) == Reading({}, complaint, "form")


def test_an_answer_may_have_as_many_characters_as_the_limit() -> None:
    assert read_reply(LAST.ljust(MOST_CHARS), IDS, PLAIN).fault == ""
    assert read_reply(LAST.ljust(MOST_CHARS + 1), IDS, PLAIN) == Reading(
        {}, "The answer is longer than 1,000,000 characters.", "form"
    )


def test_an_unfinished_answer_says_so() -> None:
    assert read_reply(LAST, IDS, PLAIN, "length").complaint == (
        "The answer was cut at the token limit."
    )
    assert read_reply(LAST, IDS, PLAIN, "content_filter").complaint == (
        "The answer was withheld by a content filter."
    )


def test_the_same_criteria_twice_are_no_contradiction() -> None:
    entry = {"id": "BC", "criteria": {"right": 1.0, "short": 0.0}}
    assert read_reply(entries(entry, entry), ["BC"], WEIGHTED).opinions["BC"].score == 0.75
    other = {"id": "BC", "criteria": {"right": 0.75, "short": 0.75}}
    found = read_reply(entries(entry, other), ["BC"], WEIGHTED)
    assert found.complaint == "BC occurs twice, with different scores."


@pytest.mark.parametrize(
    ("criteria", "complaint"),
    [
        (None, "BC: it has no criteria"),
        ({"right": 1}, "BC: the criterion short is not a number from 0 to 1"),
        ({"right": True, "short": 1}, "BC: the criterion right is not a number from 0 to 1"),
    ],
)
def test_criteria_that_are_missing_are_named(criteria: object, complaint: str) -> None:
    found = read_reply(entries({"id": "BC", "criteria": criteria}), ["BC"], WEIGHTED)
    assert found == Reading({}, f"The answer is invalid: {complaint}.", "form")


def test_a_criterion_out_of_range_is_named() -> None:
    entry = {"id": "BC", "criteria": {"right": 1.5, "short": 0}}
    assert read_reply(entries(entry), ["BC"], WEIGHTED).complaint == (
        "BC: right is 1.5, but scores are numbers from 0 to 1."
    )


def test_the_form_of_art_is_read_whole() -> None:
    scores = [{"trajectory_id": 1, "explanation": "Good.", "score": 0.5}, 5, {"score": 1}]
    found = read_art_reply(json.dumps({"scores": scores}), 2)
    assert found == Reading(
        {"1": RolloutScore(0.5, "Good.", {}, [])},
        "The answer is invalid: an entry without id was not asked for; 2 is missing.",
        "form",
    )
    assert read_art_reply("no", 1) == Reading({}, "That was not a JSON object.", "form")
    assert read_art_reply(LAST, 1).complaint == 'The object has no list "scores".'


@pytest.mark.parametrize(
    ("text", "objects"),
    [
        ("", []),
        ("[1]", []),
        (' {"a": 1} ', [{"a": 1}]),
        ('{"a": 1} {"b": 2} {"a": 1}', [{"a": 1}, {"b": 2}]),
        ('x {"a": {"b": 2}} y', [{"a": {"b": 2}}]),
        ('{"a": 1, "a": 2} {"b": 2}', []),
        ('{"a": NaN} {"b": 2}', []),
        ('{bad} {"b": 2}', [{"b": 2}]),
        ('{"a": {"b": 2}, oops} {"c": 3}', [{"c": 3}]),
        ('{{"b": 2}', [{"b": 2}]),
        ('<think>{"a": 1}</think> {"b": 2}', [{"b": 2}]),
        ('{"a": "<think>"}', [{"a": "<think>"}]),
    ],
)
def test_objects_of_a_reply(text: str, objects: list[object]) -> None:
    assert json_objects(text) == objects
    assert json_object(text) == (objects[-1] if objects else None)


@pytest.mark.parametrize("tag", ["think", "thinking", "reasoning"])
def test_what_comes_after_the_reasoning_is_the_answer(tag: str) -> None:
    assert without_reasoning(f"<{tag}>a</{tag}>b") == "b"
    assert without_reasoning(f"a</{tag}>b</{tag}>c") == "c"
    assert without_reasoning(f"a<{tag}>b") == "a"
    assert without_reasoning("plain") == "plain"


def test_quotes_are_compared_without_case_and_white_space() -> None:
    assert is_quoted("STRASSE  nach", "Die Straße\nnach Rom")
    assert not is_quoted("ab", "a b")
    assert not is_quoted("", "")
