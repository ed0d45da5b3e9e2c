"""The rules of tic-tac-toe, and the opponent: pure, nothing of a model.

A board is nine characters, row by row: `X` (the model), `O` (the opponent) or `.`; cells are
numbered 1 to 9.
"""

import random

LINES = ((1, 2, 3), (4, 5, 6), (7, 8, 9), (1, 4, 7), (2, 5, 8), (3, 6, 9), (1, 5, 9), (3, 5, 7))


def where(board, mark):
    """The numbers of the cells with this mark."""
    return [cell for cell, put in enumerate(board, 1) if put == mark]


def free(board):
    return where(board, ".")


def put(board, cell, mark):
    return board[: cell - 1] + mark + board[cell:]


def winner(board):
    """`X`, `O`, or None while no line is full."""
    for line in LINES:
        marks = {board[cell - 1] for cell in line}
        if len(marks) == 1 and marks != {"."}:
            return marks.pop()
    return None


def over(board):
    return winner(board) is not None or "." not in board


def wins(board, mark):
    """The cells that complete a line of `mark`."""
    return [cell for cell in free(board) if winner(put(board, cell, mark)) == mark]


def reply(board, seed):
    """The opponent's cell: half of the time any; else it wins, or blocks, or takes any.

    It depends on the board and the seed alone, so a game can be played again.
    """
    luck = random.Random(f"{seed}:{board}")
    if luck.random() < 0.5:
        return luck.choice(free(board))
    return luck.choice(wins(board, "O") or wins(board, "X") or free(board))


def play(board, cell, seed):
    """The model's mark in a free cell, and the opponent's answer unless that ended the game."""
    board = put(board, cell, "X")
    return board if over(board) else put(board, reply(board, seed), "O")


def show(board):
    """The cells of each mark, those that complete a line of two, and the free ones: all digits."""
    told = [("X", where(board, "X")), ("O", where(board, "O"))]
    told += [("XX", wins(board, "X")), ("OO", wins(board, "O")), ("free", free(board))]
    return "\n".join(f"{word} {''.join(map(str, cells))}" for word, cells in told if cells)


def turned(board):
    """The eight boards that rotating and mirroring make of one, itself among them."""
    boards = []
    for _ in range(4):
        board = "".join(board[3 * (2 - x) + y] for y in range(3) for x in range(3))
        boards += [board, "".join(board[3 * y + 2 - x] for y in range(3) for x in range(3))]
    return boards
