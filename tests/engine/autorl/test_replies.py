"""What can be used of a writer's answer, and what is said of the rest."""

import json
from typing import Any

import pytest

from engine.autorl.replies import read_plan, read_scenarios

PLAN = {"title": "Polite refusals", "system_prompt": "Refuse politely.", "rubric": "- polite"}


def said(entries: list[Any]) -> str:
    return json.dumps({"scenarios": entries})


@pytest.mark.parametrize(
    "text", [json.dumps(PLAN), f"Here it is:\n```json\n{json.dumps(PLAN)}\n```\nGood luck!"]
)
def test_a_plan_is_found_in_prose_too(text: str) -> None:
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
def test_what_is_no_plan_is_said(text: str, complaint: str) -> None:
    plan = read_plan(text)
    assert complaint in plan.complaint
    assert plan[:3] == ("", "", "")


def test_entries_are_read_one_by_one() -> None:
    found = read_scenarios(
        said(
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
    assert [(one.input, one.difficulty) for one in found.items] == [
        ("One", 3), ("Two", None), ("Three", None), ("Four", None), ("Five", None),
    ]  # fmt: skip
    assert found.left_out == {"without an input": 3, "longer than 8000 characters": 1}
    assert found.complaint == ""


def test_the_only_list_is_the_list() -> None:
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
def test_an_answer_without_scenarios_is_said(text: str, complaint: str) -> None:
    found = read_scenarios(text)
    assert (found.items, complaint in found.complaint) == ([], True)
