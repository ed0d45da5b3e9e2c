"""Sample temporal_clue: every case has one solution, confirmed by brute force."""

import asyncio
import itertools
import random
from collections import Counter
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.samples.conftest import (
    SAMPLES,
    Scripted,
    assert_make_data_is_reproducible,
    lines_of,
    load_importable,
    load_module,
)

FOLDER = SAMPLES / "temporal_clue"
OPTIONS = {
    "who": ["Anna", "Ben", "Tom"],
    "when": ["7", "8", "9"],
    "where": ["attic", "hall", "library"],
    "what": ["book", "key", "ring"],
}


@pytest.fixture
def puzzle(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load_importable(monkeypatch, FOLDER, "puzzle")


@pytest.fixture
def game(puzzle: ModuleType, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load_importable(monkeypatch, FOLDER, "agent")


@pytest.fixture
def maker(game: ModuleType) -> ModuleType:
    return load_module(FOLDER, "make_data")


def lines(name: str) -> list[dict[str, Any]]:
    return lines_of(FOLDER, name)


def scenarios() -> list[dict[str, Any]]:
    return lines("scenarios/train.jsonl") + lines("scenarios/validation.jsonl")


def clue_holds(clue: list[str], case: dict[str, tuple[str, ...]]) -> bool:
    """Check a clue on columns: values with the same index belong to the same visit."""
    kind, a, b = clue
    first, second = (
        next(column.index(value) for column in case.values() if value in column) for value in (a, b)
    )
    if kind in ("same", "not"):
        return (first == second) is (kind == "same")
    hours = [int(hour) for hour in case["when"]]
    gap = hours[second] - hours[first]
    return {"before": gap > 0, "hour_before": gap == 1}[kind]


def solve_by_brute_force(
    options: dict[str, list[str]], clues: list[list[str]]
) -> list[dict[str, tuple[str, ...]]]:
    """Return all assignments of hours, rooms and things to people that satisfy the clues."""
    columns = itertools.product(*(itertools.permutations(options[role]) for role in options))
    people = tuple(options["who"])
    cases = (dict(zip(options, column, strict=True)) for column in columns)
    return [c for c in cases if c["who"] == people and all(clue_holds(clue, c) for clue in clues)]


# Rules


def test_solver_agrees_with_brute_force(puzzle: ModuleType) -> None:
    assert len(puzzle.solutions(OPTIONS, [])) == 6**3
    luck = random.Random(0)
    values = [(role, value) for role, column in OPTIONS.items() for value in column]
    for _ in range(40):
        clues = []
        for _ in range(luck.randint(1, 5)):
            (role, a), (other, b) = luck.sample(values, 2)
            if role != other:
                clues.append([luck.choice(("same", "not", "before", "hour_before")), a, b])
        solved = {frozenset(map(tuple, visits)) for visits in puzzle.solutions(OPTIONS, clues)}
        brute = {
            frozenset(zip(*(case[role] for role in puzzle.ORDER), strict=True))
            for case in solve_by_brute_force(OPTIONS, clues)
        }
        assert solved == brute


@pytest.mark.parametrize(
    ("clue", "words"),
    [
        (["same", "Ben", "hall"], "Ben was in the hall."),
        (["same", "7", "hall"], "Whoever came at 7 was in the hall."),
        (["not", "Ben", "7"], "Ben did not come at 7."),
        (["not", "hall", "key"], "Whoever was in the hall did not have the key."),
        (["before", "Ben", "key"], "Ben came before whoever had the key."),
        (["hour_before", "hall", "Tom"], "Whoever was in the hall came an hour before Tom."),
    ],
)
def test_clue_is_written_as_a_sentence(puzzle: ModuleType, clue: list[str], words: str) -> None:
    assert puzzle.sentence(clue) == words


# Data


def test_every_case_has_one_solution_and_no_redundant_clue(puzzle: ModuleType) -> None:
    for line in scenarios():
        options, clues = line["options"], line["clues"]
        solutions = puzzle.solutions(options, clues)
        assert len(solutions) == 1, line["id"]
        visit = next(v for v in solutions[0] if line["room"] in v)
        solution = dict(zip(puzzle.ORDER, visit, strict=True))
        assert line["answers"] == {role: solution[role] for role in ("who", "when", "what")}
        for clue in clues:
            others = [other for other in clues if other is not clue]
            assert len(puzzle.solutions(options, others)) > 1, (line["id"], clue)


def test_answers_agree_with_brute_force(puzzle: ModuleType) -> None:
    easy = [
        line for line in lines("scenarios/validation.jsonl") if len(line["options"]["who"]) == 3
    ]
    for line in easy[::16]:
        (case,) = solve_by_brute_force(line["options"], line["clues"])
        visit = case["where"].index(line["room"])
        assert line["answers"] == {role: case[role][visit] for role in ("who", "when", "what")}


def test_levels_are_graded_and_cases_disjoint(game: ModuleType) -> None:
    train, held_out = lines("scenarios/train.jsonl"), lines("scenarios/validation.jsonl")
    texts = [game.questions(line)[0] for line in train + held_out]
    assert len(set(texts)) == len(texts)
    assert Counter(line["tag"] for line in held_out) == {
        "level 1 stated": 64,
        "level 2 linked": 32,
        "level 3 excluded": 16,
        "level 4 ordered": 16,
    }
    shown = {line["messages"][1]["content"] for line in lines("demonstrations.jsonl")}
    assert not shown & set(texts)
    for line in train + held_out:
        kinds = {clue[0] for clue in line["clues"]}
        stated = [clue for clue in line["clues"] if clue[0] == "same" and line["room"] in clue]
        level = int(line["tag"].split()[1])
        assert len(line["options"]["who"]) == (4 if level == 4 else 3)
        assert (kinds == {"same"}) == (level < 3)
        assert level > 1 or len(stated) >= 2
        assert level == 4 or not kinds & {"before", "hour_before"}


def test_data_is_reproducible(
    maker: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_make_data_is_reproducible(monkeypatch, maker, FOLDER, tmp_path)


# Agent


@pytest.mark.parametrize(
    ("words", "reward", "solved", "sensible"),
    [
        (["Ben", "8", "ring"], 1.0, 1.0, 1.0),
        ([" ben.", "8\n", "Ring"], 1.0, 1.0, 1.0),
        (["Tom", "8", "ring"], 2 / 3, 0.0, 1.0),
        (["Ben", "ring", "8"], 1 / 3, 0.0, 1 / 3),
        (["", "Hello there", "Carl"], 0.0, 0.0, 0.0),
    ],
)
def test_reward_is_share_of_correct_answers(
    game: ModuleType,
    scripted: tuple[type[Scripted], SimpleNamespace],
    words: list[str],
    reward: float,
    solved: float,
    sensible: float,
) -> None:
    model, address = scripted
    model.words = words
    scenario = {
        "options": OPTIONS,
        "clues": [["same", "Ben", "hall"], ["before", "hall", "Tom"]],
        "room": "hall",
        "answers": {"who": "Ben", "when": "8", "what": "ring"},
    }
    result = asyncio.run(game.rollout(scenario, address))
    assert result["reward"] == pytest.approx(reward)
    assert result["metrics"] == {"solved": solved, "sensible": pytest.approx(sensible)}
    assert [messages[-1]["content"] for messages in model.asked][1:] == ["When?", "With what?"]
    assert model.asked[0][1]["content"].splitlines()[-3:] == [
        "Ben was in the hall.",
        "Whoever was in the hall came before Tom.",
        "Who was in the hall?",
    ]
