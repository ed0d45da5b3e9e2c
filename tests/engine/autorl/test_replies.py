"""Parsing of the writer model's replies, and the complaints about invalid ones."""

import json
from typing import Any

import pytest

from engine.autorl.replies import read_plan, read_scenarios

PLAN = {"title": "Polite refusals", "system_prompt": "Refuse politely.", "rubric": "- polite"}


def scenarios_reply(entries: list[Any]) -> str:
    return json.dumps({"scenarios": entries})


@pytest.mark.parametrize(
    "text", [json.dumps(PLAN), f"Here it is:\n```json\n{json.dumps(PLAN)}\n```\nGood luck!"]
)
def test_plan_is_extracted_from_prose(text: str) -> None:
    plan = read_plan(text)
    assert plan == ("Polite refusals", "Refuse politely.", "- polite\n", "")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("I cannot help with that.", "it says: I cannot help"),
        ("", "it is empty"),
        ("[1]", "not a JSON object"),
        (json.dumps({**PLAN, "rubric": " "}), "no text for rubric"),
        (json.dumps({"title": 3}), "no text for title, system_prompt, rubric"),
    ],
)
def test_invalid_plan_gives_a_complaint(text: str, complaint: str) -> None:
    plan = read_plan(text)
    assert complaint in plan.complaint
    assert plan[:3] == ("", "", "")


def test_scenario_entries_are_parsed_one_by_one() -> None:
    reply = read_scenarios(
        scenarios_reply(
            [
                {"input": " One ", "difficulty": 3},
                "Two",
                {"task": "Three", "difficulty": "hard"},
                {"input": "Four", "difficulty": 9},
                {"input": "Five", "difficulty": True},
                {"input": "  "},
                {"difficulty": 1},
                7,
                {"input": "x" * 8001},
            ]
        )
    )
    assert [(one.input, one.difficulty) for one in reply.items] == [
        ("One", 3), ("Two", None), ("Three", None), ("Four", None), ("Five", None),
    ]  # fmt: skip
    assert reply.left_out == {"without an input": 3, "longer than 8000 characters": 1}
    assert reply.complaint == ""


def test_single_list_of_any_name_is_accepted() -> None:
    assert len(read_scenarios('{"tasks": ["a", "b"]}').items) == 2
    assert read_scenarios('{"tasks": ["a"], "more": ["b"]}').complaint


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("As an AI I must decline.", "it says: As an AI"),
        ('{"scenarios": "many"}', 'no list "scenarios"'),
        ('{"scenarios": []}', "none of its entries"),
        ('{"scenarios": [1, 2]}', "none of its entries"),
        ('{"scenarios": [{"input": "cut o', "not a JSON object"),
    ],
)
def test_reply_without_scenarios_gives_a_complaint(text: str, complaint: str) -> None:
    reply = read_scenarios(text)
    assert (reply.items, complaint in reply.complaint) == ([], True)
