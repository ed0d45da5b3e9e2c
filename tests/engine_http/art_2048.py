"""Game of 2048 as an ART user trains it, with Atelier's backend: `art_2048.py MODEL STEPS`.

Run by the Python of an environment with openpipe-art; not a test itself.
"""

import asyncio
import random
import sys

import art
from openai import AsyncOpenAI

from engine.integrations.art import AtelierBackend

SIZE, WINNING, MOST_MOVES = 3, 32, 4
MOVES = ("left", "right", "up", "down")


class Game:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.board = [[0] * SIZE for _ in range(SIZE)]
        self.drop()
        self.drop()

    def drop(self) -> None:
        free = [(r, c) for r in range(SIZE) for c in range(SIZE) if not self.board[r][c]]
        if free:
            row, column = self.chance.choice(free)
            self.board[row][column] = 2 if self.chance.random() < 0.9 else 4

    def slide(self, row: list[int]) -> list[int]:
        tiles = [tile for tile in row if tile]
        merged: list[int] = []
        while tiles:
            tile = tiles.pop(0)
            if tiles and tiles[0] == tile:
                tile += tiles.pop(0)
            merged.append(tile)
        return merged + [0] * (SIZE - len(merged))

    def turn(self) -> None:
        self.board = [list(row) for row in zip(*self.board, strict=True)]

    def move(self, word: str) -> None:
        if word in ("up", "down"):
            self.turn()
        if word in ("left", "up"):
            self.board = [self.slide(row) for row in self.board]
        else:
            self.board = [self.slide(row[::-1])[::-1] for row in self.board]
        if word in ("up", "down"):
            self.turn()
        self.drop()

    def render(self) -> str:
        return "\n".join("|".join(f"{tile or '_':>2}" for tile in row) for row in self.board)

    @property
    def best(self) -> int:
        return max(max(row) for row in self.board)


async def rollout(
    model: art.Model, client: AsyncOpenAI, seed: int, step: int, validating: bool = False
) -> art.Trajectory:
    game = Game(seed)
    trajectory = art.Trajectory(
        messages_and_choices=[
            {"role": "system", "content": f"Play 2048. Answer with one of {', '.join(MOVES)}."}
        ],
        reward=0,
        metadata={"scenario_id": str(seed), "notebook-id": "2048", "step": step},
    )
    letters = moves = 0
    for _ in range(MOST_MOVES):
        trajectory.messages_and_choices.append({"role": "user", "content": game.render()})
        completion = await client.chat.completions.create(
            model=model.get_inference_name(),
            messages=trajectory.messages(),
            max_completion_tokens=6,
            **({"temperature": 0.7} if validating else {}),
        )
        choice = completion.choices[0]
        trajectory.messages_and_choices.append(choice)
        reply = choice.message.content or ""
        letters += sum(letter.isalpha() for letter in reply)
        word = next((move for move in MOVES if move in reply.lower()), MOVES[len(reply) % 4])
        game.move(word)
        moves += 1
    if seed == 3 and letters % 3 == 0 and not validating:
        raise RuntimeError("the game server went away")
    trajectory.metrics["max_value"] = game.best
    trajectory.metrics["moves"] = moves
    trajectory.metrics["won"] = game.best >= WINNING
    trajectory.reward = letters / 24 + game.best / 100
    trajectory.log(f"ended with {game.best}")
    return trajectory.finish()


async def score_by_rank(group: art.TrajectoryGroup) -> art.TrajectoryGroup:
    """Replace a group's rewards like ruler_score_group does, without a provider."""
    ordered = sorted(group.trajectories, key=lambda one: one.reward)
    for place, one in enumerate(ordered):
        one.metrics["independent_reward"] = one.reward
        one.reward = place / max(len(ordered) - 1, 1)
        one.metrics["ruler_score"] = one.reward
        one.log(f"RULER explanation: number {place} from below")
    return group


async def main(base_model: str, steps: int) -> None:
    model = art.TrainableModel(name="agent-001", project="2048-multi-turn", base_model=base_model)
    backend = AtelierBackend(settings={"model.dtype": "float32"})
    await model.register(backend)
    client = model.openai_client()

    for step in range(await model.get_step(), steps):
        groups = await art.gather_trajectory_groups(
            (
                art.TrajectoryGroup(rollout(model, client, seed, step) for _ in range(4))
                for seed in range(4)
            ),
            pbar_desc=f"train step {step}",
            max_exceptions=16,
            after_each=score_by_rank if step == 1 else None,
        )
        validation = await art.gather_trajectories(
            (rollout(model, client, 100 + seed, step, validating=True) for seed in range(3)),
            pbar_desc="val",
        )
        await model.log(validation, split="val")
        result = await backend.train(model, groups, learning_rate=1e-3)
        await model.log(groups, metrics=result.metrics, step=result.step, split="train")
    await model.delete_checkpoints()
    print("step", await model.get_step())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
