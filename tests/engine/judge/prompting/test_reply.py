"""Parsing of judge replies: entries are matched by id and validated, never guessed."""

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


def test_complete_reply_is_matched_by_id_in_any_order() -> None:
    reading = read_reply(reply({"GH": 1, "BC": 0, "DF": 0.25}), IDS, PLAIN)
    assert not reading.complaint
    assert {name: opinion.score for name, opinion in reading.opinions.items()} == {
        "BC": 0,
        "DF": 0.25,
        "GH": 1,
    }


@pytest.mark.parametrize("value", [None, "0.5", True, [0.5]])
def test_non_numeric_score_leaves_only_that_trajectory_unscored(value: object) -> None:
    reading = read_reply(reply({"BC": value, "DF": 0.5, "GH": 0.5}), IDS, PLAIN)
    assert set(reading.opinions) == {"DF", "GH"}
    assert "BC" in reading.complaint


@pytest.mark.parametrize("value", [-0.01, 1.01, 7, math.nan, math.inf, 10**400])
def test_out_of_range_score_rejects_the_whole_reply(value: float) -> None:
    reading = read_reply(reply({"BC": 1, "DF": value, "GH": 0.5}), IDS, PLAIN)
    assert not reading.opinions
    assert reading.complaint


def test_scores_on_a_ten_point_scale_reject_the_whole_reply() -> None:
    text = reply({"BC": 1, "DF": 0, "GH": 9})
    assert read_reply(text, IDS, PLAIN) == Reading(
        {}, "GH: the score is 9, but scores are numbers from 0 to 1.", "form"
    )


def test_missing_and_unknown_ids_are_named() -> None:
    entries = [{"id": n, "score": 0.5} for n in ("BC", "BC", "DF", "XX")]
    reading = read_reply(json.dumps({"attempts": entries}), IDS, PLAIN)
    assert set(reading.opinions) == {"BC", "DF"}
    for word in ("XX was not asked for", "GH is missing"):
        assert word in reading.complaint


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
def test_drafts_and_contradictory_replies_give_no_scores(text: str) -> None:
    reading = read_reply(text, IDS, PLAIN)
    assert not reading.opinions
    assert reading.complaint


@pytest.mark.parametrize(("finish", "fault"), [("length", "cut"), ("content_filter", "filtered")])
def test_unfinished_reply_is_rejected_with_its_finish_reason(finish: str, fault: str) -> None:
    for reading in (read_reply(LAST, IDS, PLAIN, finish), read_art_reply(LAST, 3, finish)):
        assert not reading.opinions
        assert reading.fault == fault


def test_reasoning_is_skipped_and_repeated_answer_is_accepted() -> None:
    text = f"<think>at first {DRAFT}, on the other hand</think>\n{LAST}"
    assert {o.score for o in read_reply(text, IDS, PLAIN).opinions.values()} == {0.9}
    assert {o.score for o in read_reply(LAST + LAST, IDS, PLAIN).opinions.values()} == {0.9}


def test_deep_and_long_replies_are_rejected_within_time_limit() -> None:
    for text in ('{"attempts":' * 50_000, "[" * 100_000, '{"a":[' * 50_000, LAST + " " * 10**6):
        start = time.perf_counter()
        assert not read_reply(text, IDS, PLAIN).opinions
        assert time.perf_counter() - start < 5


@pytest.mark.parametrize(
    "wrapping",
    [
        "{}",
        "```json\n{}\n```",
        "Sure! {{not json}} here: {} Hope it helps.",
        "<think>{{}}</think>{}",
    ],
)
def test_json_object_is_extracted_from_prose(wrapping: str) -> None:
    text = wrapping.format(reply(dict.fromkeys(IDS, 0.5)))
    assert not read_reply(text, IDS, PLAIN).complaint


@pytest.mark.parametrize(
    "text", ["", "I cannot.", "[1, 2]", '{"attempts": 3}', '{"attempts": [{"id"']
)
def test_malformed_reply_gives_complaint_and_no_scores(text: str) -> None:
    reading = read_reply(text, IDS, PLAIN)
    assert not reading.opinions
    assert reading.complaint


@given(st.text(max_size=200))
def test_arbitrary_text_neither_raises_nor_scores(text: str) -> None:
    assert not read_reply(text, IDS, PLAIN).opinions


def test_score_is_weighted_mean_of_criteria() -> None:
    entry = {"id": "BC", "score": 0.9, "criteria": {"right": 1.0, "short": 0.0}}
    reading = read_reply(json.dumps({"attempts": [entry]}), ["BC"], WEIGHTED)
    assert reading.opinions["BC"].score == 0.75
    assert reading.opinions["BC"].criteria == {"right": 1.0, "short": 0.0}
    half = json.dumps({"attempts": [{"id": "BC", "criteria": {"right": 1.0}}]})
    assert "short" in read_reply(half, ["BC"], WEIGHTED).complaint


def test_art_reply_is_matched_by_id() -> None:
    scores = [{"trajectory_id": str(n), "explanation": f"e{n}", "score": n / 4} for n in (3, 1, 2)]
    random.Random(0).shuffle(scores)
    reading = read_art_reply(json.dumps({"scores": scores}), 3)
    assert {name: o.score for name, o in reading.opinions.items()} == {
        "1": 0.25,
        "2": 0.5,
        "3": 0.75,
    }
    assert "3 is missing" in read_art_reply(json.dumps({"scores": scores[:0]}), 3).complaint


def test_is_quoted_requires_the_quote_in_the_text() -> None:
    assert is_quoted("the  Answer\nis 4", "So the answer is 4.")
    assert not is_quoted("the answer is 5", "So the answer is 4.")
    assert not is_quoted("  ", "anything")


def entries(*items: object) -> str:
    return json.dumps({"attempts": items})


def test_entry_keeps_score_reason_and_string_quotes() -> None:
    entry = {"id": "BC", "score": 1, "reason": "Right.", "quotes": ["a", 5, "b"]}
    reading = read_reply(entries(entry), ["BC"], PLAIN)
    assert reading == Reading({"BC": RolloutScore(1.0, "Right.", {}, ["a", "b"])}, "", "")
    assert isinstance(reading.opinions["BC"].score, float)


@pytest.mark.parametrize(
    ("fields", "reason", "quotes"),
    [
        ({}, "", []),
        ({"reason": 5, "quotes": "a"}, "", []),
        ({"reason": "x" * (MOST_REASON + 1)}, "x" * MOST_REASON, []),
        ({"quotes": list("abcdef")}, "", list("abcdef")[:MOST_QUOTES]),
    ],
)
def test_reasons_and_quotes_are_truncated(
    fields: dict[str, object], reason: str, quotes: list[str]
) -> None:
    reading = read_reply(entries({"id": "BC", "score": 0.5} | fields), ["BC"], PLAIN)
    assert reading.opinions == {"BC": RolloutScore(0.5, reason, {}, quotes)}


@pytest.mark.parametrize(
    ("items", "complaint"),
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
def test_complaint_names_every_fault(items: list[object], complaint: str) -> None:
    reading = read_reply(entries(*items), ["BC"], PLAIN)
    assert reading.complaint == f"The answer is invalid: {complaint}."
    assert reading.fault == "form"
    assert set(reading.opinions) <= {"BC"}


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
def test_rejected_reply_states_the_reason(text: str, complaint: str) -> None:
    assert read_reply(text, IDS, PLAIN) == Reading({}, complaint, "form")


def test_reply_length_limit_is_inclusive() -> None:
    assert read_reply(LAST.ljust(MOST_CHARS), IDS, PLAIN).fault == ""
    assert read_reply(LAST.ljust(MOST_CHARS + 1), IDS, PLAIN) == Reading(
        {}, "The answer is longer than 1,000,000 characters.", "form"
    )


def test_unfinished_reply_states_the_reason() -> None:
    assert read_reply(LAST, IDS, PLAIN, "length").complaint == (
        "The answer was cut at the token limit."
    )
    assert read_reply(LAST, IDS, PLAIN, "content_filter").complaint == (
        "The answer was withheld by a content filter."
    )


def test_identical_duplicate_criteria_are_accepted() -> None:
    entry = {"id": "BC", "criteria": {"right": 1.0, "short": 0.0}}
    assert read_reply(entries(entry, entry), ["BC"], WEIGHTED).opinions["BC"].score == 0.75
    other = {"id": "BC", "criteria": {"right": 0.75, "short": 0.75}}
    reading = read_reply(entries(entry, other), ["BC"], WEIGHTED)
    assert reading.complaint == "BC occurs twice, with different scores."


@pytest.mark.parametrize(
    ("criteria", "complaint"),
    [
        (None, "BC: it has no criteria"),
        ({"right": 1}, "BC: the criterion short is not a number from 0 to 1"),
        ({"right": True, "short": 1}, "BC: the criterion right is not a number from 0 to 1"),
    ],
)
def test_invalid_criteria_are_named(criteria: object, complaint: str) -> None:
    reading = read_reply(entries({"id": "BC", "criteria": criteria}), ["BC"], WEIGHTED)
    assert reading == Reading({}, f"The answer is invalid: {complaint}.", "form")


def test_out_of_range_criterion_is_named() -> None:
    entry = {"id": "BC", "criteria": {"right": 1.5, "short": 0}}
    assert read_reply(entries(entry), ["BC"], WEIGHTED).complaint == (
        "BC: right is 1.5, but scores are numbers from 0 to 1."
    )


def test_art_reply_parses_entries_and_reports_faults() -> None:
    scores = [{"trajectory_id": 1, "explanation": "Good.", "score": 0.5}, 5, {"score": 1}]
    reading = read_art_reply(json.dumps({"scores": scores}), 2)
    assert reading == Reading(
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
def test_json_objects_lists_distinct_objects_of_a_reply(text: str, objects: list[object]) -> None:
    assert json_objects(text) == objects
    assert json_object(text) == (objects[-1] if objects else None)


@pytest.mark.parametrize("tag", ["think", "thinking", "reasoning"])
def test_reasoning_tags_are_stripped(tag: str) -> None:
    assert without_reasoning(f"<{tag}>a</{tag}>b") == "b"
    assert without_reasoning(f"a</{tag}>b</{tag}>c") == "c"
    assert without_reasoning(f"a<{tag}>b") == "a"
    assert without_reasoning("plain") == "plain"


def test_quotes_ignore_case_and_white_space() -> None:
    assert is_quoted("STRASSE  nach", "Die Straße\nnach Rom")
    assert not is_quoted("ab", "a b")
    assert not is_quoted("", "")
