"""Gradients of one batch: right-padded micro-batches, the head on trained tokens only."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from engine.policy.base import TrainBatch, TrainItem
from engine.policy.torch.loss import policy_gradient, ratio_metrics, supervised
from engine.policy.torch.model import LoraModel

Progress = Callable[[int, int], None]


class Scored(NamedTuple):
    """The trained tokens of a micro-batch, flattened in order: each tensor is [M]."""

    rows_M: Tensor
    positions_M: Tensor
    targets_M: Tensor
    sampler_logprobs_M: Tensor
    advantages_M: Tensor


def forward_backward(
    model: LoraModel, batch: TrainBatch, batch_tokens: int, progress: Progress
) -> dict[str, float]:
    """Accumulate d loss / d adapter, with loss = Σ token losses / `normaliser`.

    The split into micro-batches changes memory and nothing else. Returns metrics over the batch.
    """
    done = 0
    losses, entropies, logprobs, sampled = [], [], [], []
    for items in micro_batches(batch.items, batch_tokens):
        tokens_BT = _right_pad(items).to(model.device)
        scored = _scored(items, batch.objective == "supervised", model.device)
        hidden_BTH = model.hidden(tokens_BT)
        hidden_MH = hidden_BTH[scored.rows_M, scored.positions_M]
        logprobs_M, entropy_M = model.selected_logprobs(
            hidden_MH, scored.targets_M, batch.temperature
        )
        losses_M = (
            supervised(logprobs_M)
            if batch.objective == "supervised"
            else policy_gradient(
                logprobs_M, scored.sampler_logprobs_M, scored.advantages_M, batch.algorithm
            )
        )
        (losses_M.sum() / batch.normaliser).backward()  # type: ignore[no-untyped-call]
        losses.append(losses_M.detach().sum())
        entropies.append(entropy_M.sum())
        logprobs.append(logprobs_M.detach())
        sampled.append(scored.sampler_logprobs_M)
        done += len(items)
        progress(done, len(batch.items))
    metrics = {
        "loss": (torch.stack(losses).sum() / batch.normaliser).item(),
        "entropy": (torch.stack(entropies).sum() / sum(map(len, logprobs))).item(),
    }
    if batch.objective == "policy_gradient":
        metrics |= ratio_metrics(torch.cat(logprobs), torch.cat(sampled), batch.algorithm)
    return metrics


def micro_batches(items: list[TrainItem], batch_tokens: int) -> Iterator[list[TrainItem]]:
    """Rows of like length together, at most `batch_tokens` padded tokens at once."""
    chosen: list[TrainItem] = []
    longest = 0
    for item in sorted(items, key=lambda item: len(item.tokens)):
        longest = max(longest, len(item.tokens))
        if chosen and longest * (len(chosen) + 1) > batch_tokens:
            yield chosen
            chosen, longest = [], len(item.tokens)
        chosen.append(item)
    if chosen:
        yield chosen


def _right_pad(items: list[TrainItem]) -> Tensor:
    """Token ids [B, T]; padding follows the row, so a causal model never sees it from inside."""
    tokens_BT = torch.zeros((len(items), max(len(i.tokens) for i in items)), dtype=torch.long)
    for row, item in enumerate(items):
        tokens_BT[row, : len(item.tokens)] = torch.tensor(item.tokens)
    return tokens_BT


def _scored(items: list[TrainItem], unsampled: bool, device: torch.device) -> Scored:
    rows: list[int] = []
    positions: list[int] = []
    targets: list[int] = []
    logprobs: list[float] = []
    advantages: list[float] = []
    for row, item in enumerate(items):
        places = [place for start, end in item.spans for place in range(start, end)]
        rows += [row] * len(places)
        positions += [place - 1 for place in places]
        targets += [item.tokens[place] for place in places]
        logprobs += [0.0] * len(places) if unsampled else item.logprobs
        advantages += [item.advantage] * len(places)
    return Scored(
        torch.tensor(rows, device=device),
        torch.tensor(positions, device=device),
        torch.tensor(targets, device=device),
        torch.tensor(logprobs, device=device),
        torch.tensor(advantages, device=device),
    )
