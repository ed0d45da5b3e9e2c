"""Features of a trajectory from the untrained model: hidden states of middle layers at sampled
tokens.

Per item the mean over the sampled tokens at half of the depth, and the last sampled token at two
thirds, concatenated: [2 H]. Middle layers represent a text best; the last layers specialise in the
next token (Skean et al. 2025, *Layer by Layer*). Measured on the samples in
tests/bench/local_judge.py. The adapter is off, so the features of a trajectory never change.
"""

import torch
from torch import Tensor

from engine.policy.base import TrainItem
from engine.policy.torch.model.model import LoraModel
from engine.policy.torch.training.prefix_tree import TreePlan, grow
from engine.policy.torch.training.trainer import micro_batches

MEAN_DEPTH, LAST_DEPTH = 1 / 2, 2 / 3
"""Relative depths at which the mean and the last token are read."""


@torch.no_grad()
def features(model: LoraModel, items: list[TrainItem], batch_tokens: int) -> Tensor:
    """Feature vectors [N, 2 H] of the items by the base model, in float32 on the CPU; each item
    needs sampled tokens. `batch_tokens`: tokens per forward pass."""
    found: dict[int, Tensor] = {}
    for chosen in micro_batches(
        items, batch_tokens if model.shares_prefixes else 0, prefix_and_target
    ):
        forest = grow([prefix_and_target(item) for item in chosen])
        states = model.base_states(TreePlan(forest, model.device, model.images))
        depth = len(states) - 1
        mean_SH, last_SH = (states[round(share * depth)] for share in (MEAN_DEPTH, LAST_DEPTH))
        for item, places in zip(chosen, forest.places, strict=True):
            sampled = [place for start, end in item.spans for place in places[start:end]]
            parts = (mean_SH[sampled].float().mean(0), last_SH[sampled[-1]].float())
            found[id(item)] = torch.cat(parts).cpu()
    return torch.stack([found[id(item)] for item in items])


def prefix_and_target(item: TrainItem) -> list[int]:
    """Tokens of an item up to and including its last sampled token."""
    return item.tokens[: item.spans[-1][1]]
