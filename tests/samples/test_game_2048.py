"""Sample game_2048: rules, agent, and disjoint scenarios."""

import asyncio
import json
import random
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.samples.conftest import (
    SAMPLES,
    Scripted,
    assert_make_data_is_reproducible,
    lines_of,
    load_module,
)

FOLDER = SAMPLES / "game_2048"


@pytest.fixture(scope="module")
def game() -> ModuleType:
    return load_module(FOLDER, "agent")


@pytest.fixture
def maker(game: ModuleType, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setitem(sys.modules, "agent", game)
    return load_module(FOLDER, "make_data")


def lines(name: str) -> list[dict[str, Any]]:
    return lines_of(FOLDER, name)


# Rules


@pytest.mark.parametrize(
    ("line", "after", "points"),
    [
        ([0, 0, 0], [0, 0, 0], 0),
        ([0, 2, 0], [2, 0, 0], 0),
        ([2, 0, 2], [4, 0, 0], 4),
        ([2, 2, 2], [4, 2, 0], 4),
        ([2, 2, 4], [4, 4, 0], 4),
        ([2, 2, 4, 4], [4, 8, 0, 0], 12),
        ([4, 2, 2], [4, 4, 0], 4),
    ],
)
def test_tiles_merge_once_per_move(
    game: ModuleType, line: list[int], after: list[int], points: int
) -> None:
    assert game.merge(line) == (after, points)


def test_board_slides_in_four_directions(game: ModuleType) -> None:
    board = [[2, 0, 2], [0, 4, 0], [2, 4, 0]]
    assert game.slide(board, "left") == ([[4, 0, 0], [4, 0, 0], [2, 4, 0]], 4)
    assert game.slide(board, "right") == ([[0, 0, 4], [0, 0, 4], [0, 2, 4]], 4)
    assert game.slide(board, "up") == ([[4, 8, 2], [0, 0, 0], [0, 0, 0]], 12)
    assert game.slide(board, "down") == ([[0, 0, 0], [0, 0, 0], [4, 8, 2]], 12)


def test_tile_appears_only_after_a_valid_move(game: ModuleType) -> None:
    board = [[2, 0, 0], [0, 0, 0], [0, 0, 0]]
    assert game.play(board, "left", 7, 0) == (board, 0, False)
    assert game.play(board, "jump", 7, 0) == (board, 0, False)
    new, points, moved = game.play(board, "right", 7, 0)
    assert (points, moved, new[0][2]) == (0, True, 2)
    assert sorted(tile for row in new for tile in row)[-2:] in ([2, 2], [2, 4])
    assert game.play(board, "right", 7, 0) == (new, points, moved)
    assert board == [[2, 0, 0], [0, 0, 0], [0, 0, 0]]


def test_one_new_tile_in_ten_is_a_four(game: ModuleType) -> None:
    luck = random.Random(0)
    drawn = [max(max(row) for row in game.spawn([[0, 0], [0, 0]], luck)) for _ in range(2000)]
    assert set(drawn) == {2, 4}
    assert 140 < drawn.count(4) < 260


def test_cell_is_shown_as_one_digit(game: ModuleType) -> None:
    assert game.show([[0, 2, 4], [8, 16, 0], [0, 0, 512]]) == "012\n340\n009"


# Data


def test_scenarios_are_disjoint_and_best_score_is_correct(
    game: ModuleType, maker: ModuleType
) -> None:
    train, held_out = lines("scenarios/train.jsonl"), lines("scenarios/validation.jsonl")
    assert len(train) >= 64
    assert len(held_out) >= 48
    everyone = train + held_out
    assert len({json.dumps(scenario["board"]) for scenario in everyone}) == len(everyone)
    assert len({scenario["id"] for scenario in everyone}) == len(everyone)
    shown = {line["messages"][1]["content"] for line in lines("demonstrations.jsonl")}
    assert shown.isdisjoint(game.show(scenario["board"]) for scenario in everyone)
    for scenario in everyone[::16]:
        assert maker.best_score(scenario["board"], scenario["seed"], 0) == scenario["best"]


def test_data_is_reproducible(
    maker: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_make_data_is_reproducible(monkeypatch, maker, FOLDER, tmp_path)


# Agent


def test_agent_plays_a_game(
    game: ModuleType, scripted: tuple[type[Scripted], SimpleNamespace]
) -> None:
    model, address = scripted
    model.words = ["left", "Hello!", " Right\n", "right"]
    scenario = {"board": [[2, 2, 4], [0, 0, 0], [0, 0, 0]], "seed": 3, "moves": 4, "best": 16}
    result = asyncio.run(game.rollout(scenario, address))

    board, score, legal = scenario["board"], 0, 0
    for turn, move in enumerate(["left", "hello!", "right", "right"]):
        board, points, moved = game.play(board, move, 3, turn)
        score, legal = score + points, legal + moved
    assert score >= 12
    assert result["reward"] == score / 16
    assert result["metrics"] == {"score": score, "legal_moves": legal / 4}
    assert [len(messages) for messages in model.asked] == [2, 4, 6, 8]
    assert model.asked[-1][1]["content"] == "112\n000\n000"
    assert model.asked[-1][4]["content"] == "Hello!"
    assert model.asked[-1][3]["content"] == model.asked[-1][5]["content"]


def test_perfect_game_has_reward_one(
    game: ModuleType, maker: ModuleType, scripted: tuple[type[Scripted], SimpleNamespace]
) -> None:
    model, address = scripted
    scenario = lines("scenarios/validation.jsonl")[0]
    board = scenario["board"]
    for turn in range(scenario["moves"]):
        results = {move: game.play(board, move, scenario["seed"], turn) for move in game.MOVES}
        move = max(
            (m for m in results if results[m][2]),
            key=lambda m: (
                results[m][1] + maker.best_score(results[m][0], scenario["seed"], turn + 1)
            ),
        )
        model.words.append(move)
        board = results[move][0]
    assert asyncio.run(game.rollout(scenario, address))["reward"] == 1.0
