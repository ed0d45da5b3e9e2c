"""Loss terms of trained tokens from what a model returned for them, and metrics over a batch."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from engine.policy.base import TrainBatch, TrainItem
from engine.policy.torch.training.loss import (
    Tokens,
    k3,
    policy_gradient,
    ratio_metrics,
    supervised,
    value_loss,
    value_metrics,
)
from engine.protocol.config.algorithm import ValueCredit


class Numbers(NamedTuple):
    """Per-token inputs of the loss for M trained tokens; None for data that the batch lacks."""

    tokens: Tokens
    """Token data without the trainer's log-probs."""
    weights_M: Tensor
    values_M: Tensor | None
    returns_M: Tensor | None


class Computed(NamedTuple):
    """Results of a model for M trained tokens; None for what the objective does not need."""

    logprobs_M: Tensor
    entropy_M: Tensor | None = None
    reference_M: Tensor | None = None
    """Log-probs of the untrained model."""
    values_M: Tensor | None = None


class Terms(NamedTuple):
    """Losses of M tokens before averaging, and their terms, for metrics."""

    losses_M: Tensor
    tokens: Tokens
    entropy_M: Tensor | None
    kl_M: Tensor | None = None
    missed_M: Tensor | None = None
    values_M: Tensor | None = None
    returns_M: Tensor | None = None


def loss_terms(batch: TrainBatch, given: Numbers, computed: Computed) -> Terms:
    """Weighted losses of the trained tokens by the batch's objective; each is to be divided by the
    batch's `normaliser`."""
    algorithm = batch.algorithm
    tokens = given.tokens._replace(logprobs_M=computed.logprobs_M)
    terms = Terms(supervised(tokens.logprobs_M), tokens, computed.entropy_M)
    if batch.objective == "supervised":
        return terms
    losses_M = policy_gradient(tokens, algorithm)
    if algorithm.kl and algorithm.kl_in == "loss":
        assert computed.reference_M is not None
        kl_M = k3(tokens.logprobs_M, computed.reference_M)
        losses_M = losses_M + algorithm.kl * kl_M
        terms = terms._replace(kl_M=kl_M)
    if algorithm.entropy:
        assert computed.entropy_M is not None
        losses_M = losses_M - algorithm.entropy * computed.entropy_M
    if computed.values_M is not None and given.values_M is not None and given.returns_M is not None:
        assert isinstance(algorithm.credit, ValueCredit)
        values_M, clip = computed.values_M, algorithm.credit.clip
        missed_M = value_loss(values_M, given.values_M, given.returns_M, clip)
        losses_M = losses_M + algorithm.credit.weight * missed_M
        terms = terms._replace(missed_M=missed_M, values_M=values_M, returns_M=given.returns_M)
    return terms._replace(losses_M=losses_M * given.weights_M)


def numbers_of(items: list[TrainItem], unsampled: bool, device: torch.device) -> Numbers:
    """Inputs of the loss from the items' lists; `unsampled` (a supervised objective) ignores their
    log-probs and advantages."""
    counts = torch.tensor([sum(end - start for start, end in item.spans) for item in items])

    def row(lists: list[list[float]]) -> Tensor | None:
        values = [value for of_item in lists for value in of_item]
        return torch.tensor(values, device=device) if values else None

    nothing = torch.zeros(int(counts.sum()), device=device)
    sampled = None if unsampled else row([item.logprobs for item in items])
    taught = None if unsampled else row([item.advantages for item in items])
    tokens = Tokens(
        logprobs_M=nothing,
        sampler_logprobs_M=nothing if sampled is None else sampled,
        advantages_M=nothing if taught is None else taught,
        sequences_M=torch.arange(len(items)).repeat_interleave(counts).to(device),
        old_logprobs_M=row([item.old_logprobs for item in items]),
    )
    return Numbers(
        tokens,
        torch.tensor([item.weight for item in items]).repeat_interleave(counts).to(device),
        row([item.values for item in items]),
        row([item.returns for item in items]),
    )


def kept(terms: Terms, sequences: int) -> Terms:
    """Terms without the autograd graph, with sequence indices offset by `sequences`."""
    tokens = terms.tokens._replace(
        logprobs_M=terms.tokens.logprobs_M.detach(),
        sequences_M=terms.tokens.sequences_M + sequences,
    )
    optional = (*(terms.entropy_M, terms.kl_M, terms.missed_M), *(terms.values_M, terms.returns_M))
    known = [None if value is None else value.detach() for value in optional]
    return Terms(terms.losses_M.detach(), tokens, *known)


def metrics_of(batch: TrainBatch, parts: list[Terms]) -> dict[str, float]:
    """Metrics over all trained tokens of a batch, from the terms of its parts."""
    sums = torch.stack([part.losses_M.sum() for part in parts])
    metrics = {"loss": (sums.sum() / batch.normaliser).item()}
    if (entropy_M := joined([part.entropy_M for part in parts])) is not None:
        metrics["entropy"] = entropy_M.mean().item()
    if batch.objective == "policy_gradient":
        tokens = Tokens(*map(joined, zip(*(part.tokens for part in parts), strict=True)))  # type: ignore[arg-type]
        metrics |= ratio_metrics(tokens, batch.algorithm)
    kl_M, missed_M, values_M, returns_M = (
        joined([getattr(part, name) for part in parts])
        for name in ("kl_M", "missed_M", "values_M", "returns_M")
    )
    if kl_M is not None:
        metrics["kl"] = kl_M.mean().item()
    if missed_M is not None and values_M is not None and returns_M is not None:
        metrics["value/loss"] = missed_M.mean().item()
        metrics |= value_metrics(values_M, returns_M)
    return metrics


def joined(parts: Sequence[Tensor | None]) -> Tensor | None:
    """Concatenation over all micro-batches; None if any part is None."""
    known = [part for part in parts if part is not None]
    return torch.cat(known) if len(known) == len(parts) else None
