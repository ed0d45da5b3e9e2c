"""Writes the scenarios and the demonstrations: `python make_data.py`, the same files every time.

The demonstrations come from a mediocre player: half of the time it takes the move with the most
points, and else any of the four, even one that changes nothing. It shows the model what a move is,
and hints at what a good one is; the rest is left to be learned from the reward.
"""

import json
import random
from pathlib import Path

from agent import MOVES, SYSTEM, play, show, slide

HERE = Path(__file__).parent
SIZE, TILES, LARGEST, TURNS = 3, 6, 8, 3
TRAIN, VALIDATION, DEMONSTRATIONS = 192, 128, 400


def main():
    luck = random.Random(2048)
    boards = set()
    games = [new_game(luck, boards) for _ in range(TRAIN + VALIDATION + DEMONSTRATIONS)]
    (HERE / "scenarios").mkdir(exist_ok=True)
    write("scenarios/train.jsonl", numbered("t", games[:TRAIN]))
    write("scenarios/validation.jsonl", numbered("v", games[TRAIN : TRAIN + VALIDATION]))
    write("demonstrations.jsonl", [demonstrate(g, luck) for g in games[TRAIN + VALIDATION :]])


def new_game(luck, boards):
    """A start board that no other game has, with something to win."""
    while True:
        tiles = [2 ** luck.randint(1, LARGEST.bit_length() - 1) for _ in range(TILES)]
        cells = tiles + [0] * (SIZE * SIZE - TILES)
        luck.shuffle(cells)
        board = [cells[start : start + SIZE] for start in range(0, SIZE * SIZE, SIZE)]
        seed = luck.randrange(10**6)
        best = best_score(board, seed, 0)
        if best and tuple(cells) not in boards:
            boards.add(tuple(cells))
            return {"board": board, "seed": seed, "moves": TURNS, "best": best}


def best_score(board, seed, turn):
    """What the best of all ways to play the remaining moves brings."""
    if turn == TURNS:
        return 0
    results = [play(board, move, seed, turn) for move in MOVES]
    return max(
        (points + best_score(new, seed, turn + 1) for new, points, moved in results if moved),
        default=0,
    )


def demonstrate(game, luck):
    board = game["board"]
    messages = [{"role": "system", "content": SYSTEM}]
    for turn in range(TURNS):
        move = mediocre(board, luck)
        messages.append({"role": "user", "content": show(board)})
        messages.append({"role": "assistant", "content": move})
        board, _, _ = play(board, move, game["seed"], turn)
    return {"messages": messages}


def mediocre(board, luck):
    """The best move for now, or any."""
    if luck.random() < 0.5:
        return luck.choice(MOVES)
    points = {move: slide(board, move)[1] for move in MOVES if slide(board, move)[0] != board}
    most = max(points.values(), default=0)
    return luck.choice([move for move in points if points[move] == most] or MOVES)


def numbered(prefix, games):
    return [
        {"id": f"{prefix}{number:03}", "title": show(game["board"]).replace("\n", " "), **game}
        for number, game in enumerate(games, 1)
    ]


def write(name, lines):
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (HERE / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
