"""Preset `art` against ART 0.5.18's arithmetic for one packed row, written out from its source
(`tokenize_trajectory_groups`, `packed_tensors_from_tokenized_results`, `loss_fn`)."""

import math
import random

import pytest
import torch

from engine.policy.torch.training.loss import Tokens, policy_gradient
from engine.protocol.config.algorithm import Algorithm
from engine.protocol.config.project import TrainConfig
from engine.protocol.records.conversations import Branch
from engine.protocol.records.runs import Trajectory
from engine.reward.advantage.group import advantages
from engine.training.step.batch import rows, split_into_batches, train_items

ART = Algorithm(preset="art")
REWARDS = ([1.0, 0.0, 0.25, 0.0], [0.5, 0.5, 0.5], [0.9, 0.1, 0.5])


def random_groups(rng: random.Random) -> list[list[Trajectory]]:
    """Groups of trajectories with one or two branches each."""
    groups = []
    for number, rewards in enumerate(REWARDS):
        group = []
        for index, (reward, advantage) in enumerate(
            zip(rewards, advantages(ART.advantage, rewards), strict=True)
        ):
            lengths = [rng.randint(1, 6) for _ in range(rng.randint(1, 2))]
            group.append(
                Trajectory(
                    id=f"{number}-{index}",
                    split="train",
                    step=1,
                    group=number,
                    index=index,
                    scenario_id="s",
                    title="",
                    reward=reward,
                    advantage=advantage,
                    sampled_tokens=sum(lengths),
                    branches=[
                        Branch(
                            tokens=list(range(2 + length)),
                            spans=[(2, 2 + length)],
                            logprobs=[-rng.expovariate(0.7) for _ in range(length)],
                        )
                        for length in lengths
                    ],
                )
            )
        groups.append(group)
    return groups


def art_loss(groups: list[list[Trajectory]], new: dict[str, list[float]]) -> float:
    row: list[tuple[float, float, float, float]] = []  # new, sampler, advantage, weight
    for group in groups:
        rewards = [t.reward or 0.0 for t in group]
        mean = sum(rewards) / len(rewards)
        std = math.sqrt(sum((r - mean) ** 2 for r in rewards) / len(rewards))
        for t, reward in zip(group, rewards, strict=True):
            advantage = (reward - mean) / (std + 1e-6)
            if advantage == 0:
                continue
            old = [lp for b in t.branches for lp in b.logprobs]
            weight = 1 / (len(old) + 1e-6)
            row += [(n, o, advantage, weight) for n, o in zip(new[t.id], old, strict=True)]
    mean_weight = sum(w for *_, w in row) / len(row)
    row = [(n, o, a, w / mean_weight) for n, o, a, w in row]
    size = sum(abs(a) * w for *_, a, w in row) / len(row)
    terms = [min(max(math.exp(n - o), 0.0), 5.0) * a / size * n * w for n, o, a, w in row]
    return -sum(terms) / (len(row) + 1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_packed_row_loss_equals_art(seed: int) -> None:
    rng = random.Random(seed)
    groups = random_groups(rng)
    new = {
        t.id: [lp + rng.gauss(0, 1.2) for b in t.branches for lp in b.logprobs]
        for group in groups
        for t in group
    }
    train = TrainConfig(algorithm=ART)
    training_rows = rows(groups, ART)
    (batch,) = split_into_batches(groups, training_rows, train_items(training_rows, ART), train)
    new_logprobs = {t.id: new[t.id] for group in groups for t in group if t.advantage}
    logprobs = [lp for lps in new_logprobs.values() for lp in lps]
    tokens = Tokens(
        torch.tensor(logprobs),
        torch.tensor([lp for item in batch.items for lp in item.logprobs]),
        torch.tensor([a for item in batch.items for a in item.advantages]),
        torch.zeros(len(logprobs), dtype=torch.long),
    )
    weights = torch.tensor([item.weight for item in batch.items for _ in item.logprobs])
    ours = (policy_gradient(tokens, ART) * weights).sum().item() / batch.normaliser
    assert ours == pytest.approx(art_loss(groups, new), rel=1e-4)
