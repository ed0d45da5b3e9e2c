"""Replies: aligned by id, checked, never guessed."""

import json
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.judge.reply import is_quoted, read_art_reply, read_reply
from engine.protocol.judging import Criterion, Rubric

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


@pytest.mark.parametrize("value", [-0.01, 1.01, 7, math.nan, math.inf, None, "0.5", True, [0.5]])
def test_what_is_no_number_from_0_to_1_is_no_score(value: object) -> None:
    found = read_reply(reply({"BC": value, "DF": 0.5, "GH": 0.5}), IDS, PLAIN)
    assert set(found.opinions) == {"DF", "GH"}
    assert "BC" in found.complaint


def test_missing_doubled_and_unknown_ones_are_named() -> None:
    entries = [{"id": n, "score": 0.5} for n in ("BC", "BC", "DF", "XX")]
    found = read_reply(json.dumps({"attempts": entries}), IDS, PLAIN)
    assert set(found.opinions) == {"DF"}
    for word in ("BC is there twice", "XX was not asked for", "GH is missing"):
        assert word in found.complaint


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
