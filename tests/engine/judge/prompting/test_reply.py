"""Replies: aligned by id, checked, never guessed."""

import json
import math
import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.judge.prompting.reply import Reading, is_quoted, read_art_reply, read_reply
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
