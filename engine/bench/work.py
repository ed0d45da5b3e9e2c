"""Work for both trainers of a benchmark: fixed prompts and lengths, the same stored trajectories.

Pure: everything follows from the shape, the vocabulary and a seed.
"""

import random
from typing import NamedTuple

from engine.protocol.base import Value


class Shape(NamedTuple):
    """Tokens per prompt and per completion, rollouts per group, groups per step."""

    prompt: int
    completion: int
    group: int
    groups: int

    @property
    def words(self) -> str:
        return f"{self.prompt}/{self.completion}/{self.group}/{self.groups}"

    @property
    def attempts(self) -> int:
        return self.group * self.groups


class Attempt(Value):
    """A stored trajectory: tokens, mask of sampled ones, log-probs and reward."""

    prompt: list[int]
    completion: list[int]
    mask: list[int]
    """1 for tokens sampled by the policy, 0 for observations; as long as the completion."""
    logprobs: list[float]
    """Log-probs by the sampler, as long as the completion; 0.0 for observations."""
    reward: float
    group: int


def parse_shape(text: str) -> Shape:
    """Parse `P,C,G,Q`: tokens of a prompt, tokens of a completion, group size, groups. Raises
    ValueError with one sentence."""
    parts = text.split(",")
    if len(parts) != 4 or not all(part.strip().isdigit() and int(part) > 0 for part in parts):
        raise ValueError(
            f"{text!r} is not a shape: write prompt tokens, completion tokens, group size and "
            "number of groups, for example 256,64,8,2"
        )
    shape = Shape(*map(int, parts))
    if shape.group < 2:
        raise ValueError(f"{text!r} has a group size of 1, but a group needs at least 2 rollouts")
    return shape


def prompts(shape: Shape, plain_tokens: list[int], seed: int) -> list[list[int]]:
    """Prompts of random `plain_tokens`, one per group."""
    chance = random.Random(seed)
    return [chance.choices(plain_tokens, k=shape.prompt) for _ in range(shape.groups)]


def rewards(shape: Shape, seed: int) -> list[float]:
    """Random rewards in [0, 1), one per rollout."""
    chance = random.Random(seed + 1)
    return [chance.random() for _ in range(shape.attempts)]


def multi_turn(
    vocabulary: int, base: int, turns: int, answer: int, observation: int, group: int, seed: int
) -> list[Attempt]:
    """Return a group of conversations of random tokens below `vocabulary`: a prompt of `base`
    tokens, then `turns` answers of `answer` tokens with observations of `observation` tokens
    between. Log-probs are 0."""
    chance = random.Random(seed)
    prompt = [chance.randrange(vocabulary) for _ in range(base)]
    attempts = []
    for _ in range(group):
        completion: list[int] = []
        mask: list[int] = []
        for turn in range(turns):
            env_tokens = observation if turn < turns - 1 else 0
            completion += [chance.randrange(vocabulary) for _ in range(answer + env_tokens)]
            mask += [1] * answer + [0] * env_tokens
        attempts.append(
            Attempt(
                prompt=prompt,
                completion=completion,
                mask=mask,
                logprobs=[0.0] * len(completion),
                reward=chance.random(),
                group=0,
            )
        )
    return attempts
