"""Plays tic-tac-toe from a started board: the board goes in, the number of a free cell comes out.

A scenario is a board with the model (X) to move and a seed for the opponent. A won game is worth 1,
a drawn one ½ and a lost one ¼; an answer that is no free cell ends the game with 0.
"""

import openai
from board import free, over, play, show, winner

SYSTEM = "Play X: name a free cell."
WORTH = {"X": 1.0, None: 0.5, "O": 0.25}


async def rollout(scenario, model):
    board, legal = scenario["board"], True
    messages = [{"role": "system", "content": SYSTEM}]
    async with openai.AsyncOpenAI(base_url=model.base_url, api_key=model.api_key) as client:
        while legal and not over(board):
            messages.append({"role": "user", "content": show(board)})
            answer = await client.chat.completions.create(
                model=model.name, messages=messages, max_completion_tokens=2
            )
            said = answer.choices[0].message.content or ""
            messages.append({"role": "assistant", "content": said})
            cell = cell_of(said, board)
            legal = cell is not None
            if legal:
                board = play(board, cell, scenario["seed"])
    return {
        "reward": WORTH[winner(board)] if legal else 0.0,
        "metrics": {"legal": float(legal), "won": float(legal and winner(board) == "X")},
    }


def cell_of(said, board):
    """The free cell that the answer names, and nothing but names; None else."""
    said = said.strip()
    return int(said) if said in map(str, free(board)) else None
