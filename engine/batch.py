"""Trajectories with advantages → what the policy trains on. Pure: values in, values out."""

from engine.policy.base import TrainItem
from engine.protocol.config import TrainConfig
from engine.protocol.records import Trajectory


def train_items(groups: list[list[Trajectory]]) -> list[TrainItem]:
    """Every branch of every trajectory with an advantage; groups without signal cost nothing."""
    return [
        TrainItem(
            tokens=branch.tokens,
            spans=branch.spans,
            logprobs=branch.logprobs,
            advantage=trajectory.advantage,
        )
        for group in groups
        for trajectory in group
        if trajectory.advantage
        for branch in trajectory.branches
        if branch.spans
    ]


def normaliser(groups: list[list[Trajectory]], train: TrainConfig) -> int:
    """What the summed losses are divided by: over all scored attempts, with signal or without."""
    scored = [t for group in groups for t in group if t.reward is not None]
    if train.algorithm.average == "tokens":
        return sum(t.sampled_tokens for t in scored)
    sequences = sum(bool(branch.spans) for t in scored for branch in t.branches)
    return sequences * (train.max_tokens if train.algorithm.average == "constant" else 1)


def trained_tokens(item: TrainItem) -> int:
    return sum(end - start for start, end in item.spans)
