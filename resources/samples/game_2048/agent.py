"""Plays a few moves of 2048: the board goes in, a move comes out, again and again.

A scenario is a start board, a seed for the tiles that appear, how many moves there are, and the
best score that those moves can reach. The reward is the share of that score. A move that changes
nothing, or a word that is no move, is lost: the board stays as it is, and the game goes on.
"""

import random

import openai

MOVES = ("left", "right", "up", "down")
SYSTEM = "Play 2048."


async def rollout(scenario, model):
    board, turns = scenario["board"], scenario["moves"]
    score = legal = 0
    messages = [{"role": "system", "content": SYSTEM}]
    async with openai.AsyncOpenAI(base_url=model.base_url, api_key=model.api_key) as client:
        for turn in range(turns):
            messages.append({"role": "user", "content": show(board)})
            answer = await client.chat.completions.create(
                model=model.name, messages=messages, max_completion_tokens=3
            )
            said = answer.choices[0].message.content or ""
            messages.append({"role": "assistant", "content": said})
            board, gained, moved = play(board, said.strip().lower(), scenario["seed"], turn)
            score += gained
            legal += moved
    return {
        "reward": score / scenario["best"],
        "metrics": {"score": score, "legal_moves": legal / turns},
    }


def show(board):
    """One digit a cell, so one token a cell: 1 is the tile 2, 2 is 4, 3 is 8; 0 is empty."""
    powers = [[tile.bit_length() - 1 if tile else 0 for tile in row] for row in board]
    return "\n".join("".join(map(str, row)) for row in powers)


def play(board, move, seed, turn):
    """Slide, merge, and let a tile appear: (new board, points, whether anything moved).

    The tile depends on the seed and the turn alone, so a game can be played again.
    """
    if move not in MOVES:
        return board, 0, False
    moved, points = slide(board, move)
    if moved == board:
        return board, 0, False
    return spawn(moved, random.Random(f"{seed}:{turn}")), points, True


def slide(board, move):
    """Every row (or column) slides and merges towards `move`: (new board, points)."""
    upright, backwards = move in ("up", "down"), move in ("right", "down")
    lines = [list(line) for line in (zip(*board) if upright else board)]
    slid = [merge(line[::-1] if backwards else line) for line in lines]
    lines = [line[::-1] if backwards else line for line, _ in slid]
    points = sum(points for _, points in slid)
    return [list(line) for line in (zip(*lines) if upright else lines)], points


def merge(line):
    """Tiles slide to the front; two equal neighbours become one, once a move: (line, points)."""
    tiles = [tile for tile in line if tile]
    merged, points = [], 0
    while tiles:
        tile = tiles.pop(0)
        if tiles and tiles[0] == tile:
            tile += tiles.pop(0)
            points += tile
        merged.append(tile)
    return merged + [0] * (len(line) - len(merged)), points


def spawn(board, luck):
    """A 2 (or, one time in ten, a 4) appears in an empty cell; after a move there always is one."""
    empty = [(y, x) for y, row in enumerate(board) for x, tile in enumerate(row) if not tile]
    y, x = luck.choice(empty)
    board[y][x] = 4 if luck.random() < 0.1 else 2
    return board
