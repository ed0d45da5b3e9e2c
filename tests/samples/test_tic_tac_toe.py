"""Sample tic_tac_toe: rules confirmed by brute force, and disjoint boards."""

import asyncio
import itertools
import random
from collections.abc import Iterator
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

FOLDER = SAMPLES / "tic_tac_toe"


@pytest.fixture
def board(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load_importable(monkeypatch, FOLDER, "board")


@pytest.fixture
def game(board: ModuleType, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load_importable(monkeypatch, FOLDER, "agent")


@pytest.fixture
def maker(game: ModuleType) -> ModuleType:
    return load_module(FOLDER, "make_data")


def lines(name: str) -> list[dict[str, Any]]:
    return lines_of(FOLDER, name)


def full_lines(cells: list[list[str]]) -> list[list[str]]:
    """Return rows, columns and diagonals, without a table of them."""
    across = [cells[n][n] for n in range(3)], [cells[n][2 - n] for n in range(3)]
    return [*cells, *map(list, zip(*cells, strict=True)), *map(list, across)]


# Rules


def test_winner_and_end_of_game_on_every_board(board: ModuleType) -> None:
    for marks in itertools.product("XO.", repeat=9):
        cells = [list(marks[start : start + 3]) for start in (0, 3, 6)]
        owners = {line[0] for line in full_lines(cells) if len(set(line)) == 1} - {"."}
        won = board.winner("".join(marks))
        assert won in owners if owners else won is None
        assert board.over("".join(marks)) == bool(owners or "." not in marks)


def test_number_of_all_games_is_correct(board: ModuleType) -> None:
    """255,168 games: X wins 131,184, O wins 77,904, and 46,080 are drawn."""
    ends: dict[str | None, int] = {"X": 0, "O": 0, None: 0}

    def play(marks: str, mark: str) -> None:
        if board.over(marks):
            ends[board.winner(marks)] += 1
            return
        for cell in board.free(marks):
            play(board.put(marks, cell, mark), "O" if mark == "X" else "X")

    for first in (1, 2, 5):  # the other corners and sides are rotations of these
        play(board.put("." * 9, first, "X"), "O")
        if first == 2:
            ends = {who: 4 * count for who, count in ends.items()}
    assert ends == {"X": 131_184, "O": 77_904, None: 46_080}


def test_opponent_moves_randomly_half_of_the_time(board: ModuleType) -> None:
    """O wins on 3, and would block on 9: a sensible move is 3, a random one any of five."""
    marks = "OO.XX...."
    replies = [board.reply(marks, seed) for seed in range(2000)]
    assert replies == [board.reply(marks, seed) for seed in range(2000)]
    assert set(replies) == {3, 6, 7, 8, 9}
    assert 0.56 < replies.count(3) / len(replies) < 0.64
    blocked = [board.reply("O..XX....", seed) for seed in range(2000)]
    assert 0.54 < blocked.count(6) / len(blocked) < 0.62


def test_move_is_answered_unless_it_ends_the_game(board: ModuleType) -> None:
    assert board.play("XX.OO....", 3, 1) == "XXXOO...."
    after = board.play("X...O....", 9, 1)
    assert (after.count("X"), after.count("O")) == (2, 2)
    assert after == board.play("X...O....", 9, 1)


def test_board_is_shown_by_its_cells(board: ModuleType) -> None:
    assert board.show("X.O.X...O") == "X 15\nO 39\nOO 6\nfree 24678"
    assert board.show("XX.OO...X") == "X 129\nO 45\nXX 3\nOO 6\nfree 3678"


def test_symmetric_boards_are_all_eight(board: ModuleType) -> None:
    whole = board.turned("123456789")
    assert len(set(whole)) == 8
    assert {"123456789", "741852963", "321654987", "147258369"} <= set(whole)
    for marks in whole:
        cells = {n: divmod(marks.index(str(n)), 3) for n in range(1, 10)}
        assert cells[5] == (1, 1)
        assert all(
            sum(abs(a - b) for a, b in zip(cells[1], cells[n], strict=True)) == 1 for n in (2, 4)
        )


# Data


def test_held_out_boards_are_not_symmetric_to_training_boards(board: ModuleType) -> None:
    train, held_out = lines("scenarios/train.jsonl"), lines("scenarios/validation.jsonl")
    assert (len(train), len(held_out)) == (256, 128)
    training_boards = {marks for line in train for marks in board.turned(line["board"])}
    assert not training_boards & {line["board"] for line in held_out}
    firsts = [line["messages"][1]["content"] for line in lines("demonstrations.jsonl")]
    assert not {board.show(line["board"]) for line in held_out} & set(firsts)


def test_every_board_can_be_won_or_not(board: ModuleType) -> None:
    def ends(marks: str, seed: int) -> Iterator[str | None]:
        if board.over(marks):
            yield board.winner(marks)
            return
        for cell in board.free(marks):
            yield from ends(board.play(marks, cell, seed), seed)

    for line in lines("scenarios/validation.jsonl") + lines("scenarios/train.jsonl"):
        assert len(board.free(line["board"])) == 5
        outcomes = set(ends(line["board"], line["seed"]))
        assert "X" in outcomes
        assert len(outcomes) > 1


def test_data_is_reproducible(
    maker: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_make_data_is_reproducible(monkeypatch, maker, FOLDER, tmp_path)


def test_demonstrated_moves_are_legal_and_mediocre(board: ModuleType, maker: ModuleType) -> None:
    for line in lines("demonstrations.jsonl"):
        shown = [m["content"] for m in line["messages"] if m["role"] == "user"]
        cells = [m["content"] for m in line["messages"] if m["role"] == "assistant"]
        for state, cell in zip(shown, cells, strict=True):
            assert cell in state.split("free ")[1]
    luck = random.Random(0)
    moves = [maker.mediocre("XX.OO....", luck) for _ in range(1000)]
    assert 0.55 < moves.count(3) / 1000 < 0.65


# Agent


@pytest.mark.parametrize(
    ("words", "reward", "metrics"),
    [
        (["3"], 1.0, {"legal": 1.0, "won": 1.0}),
        ([" 3\n"], 1.0, {"legal": 1.0, "won": 1.0}),
        (["1"], 0.0, {"legal": 0.0, "won": 0.0}),
        (["three"], 0.0, {"legal": 0.0, "won": 0.0}),
        (["37"], 0.0, {"legal": 0.0, "won": 0.0}),
        ([""], 0.0, {"legal": 0.0, "won": 0.0}),
    ],
)
def test_one_reply_wins_or_ends_the_game(
    game: ModuleType,
    scripted: tuple[type[Scripted], SimpleNamespace],
    words: list[str],
    reward: float,
    metrics: dict[str, float],
) -> None:
    model, address = scripted
    model.words = words
    result = asyncio.run(game.rollout({"board": "XX.OO....", "seed": 1}, address))
    assert result == {"reward": reward, "metrics": metrics}
    assert model.asked[0][1]["content"] == "X 12\nO 45\nXX 3\nOO 6\nfree 36789"


@pytest.mark.parametrize(("end", "worth"), [("X", 1.0), (None, 0.5), ("O", 0.25)])
def test_reward_depends_on_outcome_of_the_game(
    game: ModuleType,
    board: ModuleType,
    scripted: tuple[type[Scripted], SimpleNamespace],
    end: str | None,
    worth: float,
) -> None:
    """Find a random game with this outcome, and replay it through the agent."""
    model, address = scripted
    for seed in range(1000):
        luck, marks, moves = random.Random(seed), "XO..X...O", []
        while not board.over(marks):
            moves.append(luck.choice(board.free(marks)))
            marks = board.play(marks, moves[-1], seed)
        if board.winner(marks) == end and len(moves) > 1:
            break
    else:
        raise AssertionError(f"no game ends with {end}")
    model.words = [str(cell) for cell in moves]
    result = asyncio.run(game.rollout({"board": "XO..X...O", "seed": seed}, address))
    assert result["reward"] == worth
    assert [len(messages) for messages in model.asked] == [2 * n for n in range(1, len(moves) + 1)]
