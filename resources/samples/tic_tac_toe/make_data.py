"""Writes the scenarios and the demonstrations: `python make_data.py`, the same files every time.

The demonstrations come from a mediocre player: of its moves, half are blind, and the others win or
block where that is possible. It shows the model what a move is, and hints at what a good one is;
the rest is left to be learned from the reward.
"""

import itertools
import json
import random
from pathlib import Path

from agent import SYSTEM, WORTH
from board import free, over, play, show, turned, winner, wins

HERE = Path(__file__).parent
MARKS, HELD_OUT, SENSIBLE = 2, 0.25, 0.5
TRAIN, VALIDATION, DEMONSTRATIONS = 256, 128, 160


def main():
    luck = random.Random(3)
    classes = started(MARKS)
    luck.shuffle(classes)
    held_out = int(len(classes) * HELD_OUT)
    train, validation = (
        [game for boards in part for board in boards for game in worth_playing(board, luck)]
        for part in (classes[held_out:], classes[:held_out])
    )
    luck.shuffle(train)
    luck.shuffle(validation)
    (HERE / "scenarios").mkdir(exist_ok=True)
    write("scenarios/train.jsonl", numbered("t", train[:TRAIN]))
    write("scenarios/validation.jsonl", numbered("v", validation[:VALIDATION]))
    games = [demonstrate(luck.choice(train)["board"], luck) for _ in range(DEMONSTRATIONS)]
    write("demonstrations.jsonl", games)


def started(marks):
    """Every undecided board with so many X and O; those that turning makes alike together."""
    classes = {}
    for xs in itertools.combinations(range(1, 10), marks):
        for noughts in itertools.combinations(sorted(set(range(1, 10)) - set(xs)), marks):
            board = "".join("X" if c in xs else "O" if c in noughts else "." for c in range(1, 10))
            if winner(board) is None:
                classes.setdefault(min(turned(board)), []).append(board)
    return [classes[first] for first in sorted(classes)]


def worth_playing(board, luck):
    """The board as a scenario, where one can win and need not."""
    seed = luck.randrange(10**6)
    results = outcomes(board, seed)
    if max(results) == WORTH["X"] > min(results):
        return [{"board": board, "seed": seed}]
    return []


def outcomes(board, seed):
    """What all ways to play on against this opponent are worth."""
    if over(board):
        return [WORTH[winner(board)]]
    return [end for cell in free(board) for end in outcomes(play(board, cell, seed), seed)]


def demonstrate(board, luck):
    messages = [{"role": "system", "content": SYSTEM}]
    seed = luck.randrange(10**6)
    while not over(board):
        cell = mediocre(board, luck)
        messages.append({"role": "user", "content": show(board)})
        messages.append({"role": "assistant", "content": str(cell)})
        board = play(board, cell, seed)
    return {"messages": messages}


def mediocre(board, luck):
    """A cell that wins, or else one that blocks, or any."""
    if luck.random() < SENSIBLE:
        return luck.choice(wins(board, "X") or wins(board, "O") or free(board))
    return luck.choice(free(board))


def numbered(prefix, games):
    """No board of the validation is one of the training's, turned or mirrored."""
    return [
        {"id": f"{prefix}{number:03}", "title": title(game["board"]), **game}
        for number, game in enumerate(games, 1)
    ]


def title(board):
    return " ".join(board[start : start + 3] for start in (0, 3, 6))


def write(name, lines):
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (HERE / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
