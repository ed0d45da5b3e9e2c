"""Gradients of one batch: prefix trees without padding, the head on trained tokens only."""

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from engine.policy.base import TrainBatch, TrainItem
from engine.policy.torch.cache import shared
from engine.policy.torch.effort import TrainEffort
from engine.policy.torch.loss import (
    Tokens,
    k3,
    policy_gradient,
    ratio_metrics,
    share,
    supervised,
)
from engine.policy.torch.model import LoraModel
from engine.policy.torch.tree import Forest, TreePlan, grow

Progress = Callable[[int, int], None]


class Scored(NamedTuple):
    """The M trained tokens of a micro-batch; N of them differ in place or token."""

    places_N: Tensor
    """In the flat row: each token is predicted from the place before it on its path."""
    targets_N: Tensor
    which_M: Tensor
    """Into N: siblings that said the same share its log-prob."""
    sampler_logprobs_M: Tensor
    advantages_M: Tensor
    sequences_M: Tensor


def forward_backward(
    model: LoraModel, batch: TrainBatch, batch_tokens: int, progress: Progress
) -> dict[str, float]:
    """Accumulate d loss / d adapter, with loss = Σ token losses / `normaliser`.

    The split into micro-batches changes memory and nothing else. Returns metrics over the batch.
    """
    begun, done = time.perf_counter(), 0
    effort = TrainEffort(model.shape, [seen(item) for item in batch.items])
    algorithm = batch.algorithm
    losses, entropies, divergences = [], [], []
    logprobs, sampled, sequences = [], [], []
    for items in micro_batches(batch.items, batch_tokens):
        forest = grow([seen(item) for item in items])
        scored = _scored(items, forest, batch.objective == "supervised", model.device)
        plan = TreePlan(forest, model.device)
        hidden_SH = model.hidden(plan)
        logprobs_N, entropy_N = model.selected_logprobs(
            hidden_SH[scored.places_N], scored.targets_N, batch.temperature
        )
        logprobs_M, entropy_M = logprobs_N[scored.which_M], entropy_N[scored.which_M]
        if batch.objective == "supervised":
            losses_M = supervised(logprobs_M)
        else:
            tokens = Tokens(
                logprobs_M, scored.sampler_logprobs_M, scored.advantages_M, scored.sequences_M
            )
            losses_M = policy_gradient(tokens, algorithm)
            if algorithm.kl:
                reference_N = _reference(model, plan, scored, batch.temperature)
                kl_M = k3(logprobs_M, reference_N[scored.which_M])
                losses_M = losses_M + algorithm.kl * kl_M
                divergences.append(kl_M.detach())
            if algorithm.entropy:
                losses_M = losses_M - algorithm.entropy * entropy_M
            losses_M = losses_M * share(scored.sequences_M, algorithm.average)
        (losses_M.sum() / batch.normaliser).backward()  # type: ignore[no-untyped-call]
        losses.append(losses_M.detach().sum())
        entropies.append(entropy_M.detach().sum())
        logprobs.append(logprobs_M.detach())
        sampled.append(scored.sampler_logprobs_M)
        sequences.append(scored.sequences_M + done)
        done += len(items)
        effort.ran(plan, len(scored.places_N.unique()), len(logprobs_N), bool(divergences))
        progress(done, len(batch.items))
    metrics = {
        "loss": (torch.stack(losses).sum() / batch.normaliser).item(),
        "entropy": (torch.stack(entropies).sum() / sum(map(len, logprobs))).item(),
    }
    if batch.objective == "policy_gradient":
        metrics |= ratio_metrics(
            torch.cat(logprobs), torch.cat(sampled), torch.cat(sequences), algorithm
        )
    if divergences:
        metrics["kl"] = torch.cat(divergences).mean().item()
    metrics |= effort.metrics(model.limits, time.perf_counter() - begun)
    return metrics


@torch.no_grad()
def _reference(model: LoraModel, plan: TreePlan, scored: "Scored", temperature: float) -> Tensor:
    """Log-probs [N] of the untrained model, over the same trees."""
    with model.trained.disable_adapter():
        hidden_SH = model.hidden(plan)
    return model.selected_logprobs(hidden_SH[scored.places_N], scored.targets_N, temperature)[0]


def seen(item: TrainItem) -> list[int]:
    """What the model must see of a sequence: all before its last trained token."""
    return item.tokens[: item.spans[-1][1] - 1]


def micro_batches(items: list[TrainItem], batch_tokens: int) -> Iterator[list[TrainItem]]:
    """Like beginnings together, at most `batch_tokens` different tokens at once (or one item)."""
    chosen: list[TrainItem] = []
    total = 0
    for item in sorted(items, key=lambda item: item.tokens):
        tokens = seen(item)
        new = len(tokens) - (shared(seen(chosen[-1]), tokens) if chosen else 0)
        if chosen and total + new > batch_tokens:
            yield chosen
            chosen, total, new = [], 0, len(tokens)
        chosen.append(item)
        total += new
    if chosen:
        yield chosen


def _scored(
    items: list[TrainItem], forest: Forest, unsampled: bool, device: torch.device
) -> Scored:
    pairs: list[tuple[int, int]] = []
    logprobs: list[float] = []
    advantages: list[float] = []
    sequences: list[int] = []
    for number, (item, places) in enumerate(zip(items, forest.places, strict=True)):
        trained = [place for start, end in item.spans for place in range(start, end)]
        pairs += [(places[place - 1], item.tokens[place]) for place in trained]
        logprobs += [0.0] * len(trained) if unsampled else item.logprobs
        advantages += [item.advantage] * len(trained)
        sequences += [number] * len(trained)
    numbers = {pair: number for number, pair in enumerate(dict.fromkeys(pairs))}
    return Scored(
        torch.tensor([place for place, _ in numbers], device=device),
        torch.tensor([target for _, target in numbers], device=device),
        torch.tensor([numbers[pair] for pair in pairs], device=device),
        torch.tensor(logprobs, device=device),
        torch.tensor(advantages, device=device),
        torch.tensor(sequences, device=device),
    )
