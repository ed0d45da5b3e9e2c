"""Objectives over trained tokens. Pure tensor functions that return per-token losses.

M trained tokens of whole sequences. r is the importance ratio of the update, w the weight that
corrects the difference between trainer and sampler. Exponents are clamped to ±20, and a token with
a number that is not finite has weight 0.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from engine.protocol.config.algorithm import (
    Algorithm,
    Cispo,
    Clipped,
    Correction,
    Gspo,
    SequenceMask,
    TokenCap,
    TokenMask,
)

EXPONENT_LIMIT = 20.0


class Tokens(NamedTuple):
    """Data of M trained tokens; natural logarithms."""

    logprobs_M: Tensor
    """Log-probs of the trainer, with gradient."""
    sampler_logprobs_M: Tensor
    advantages_M: Tensor
    sequences_M: Tensor
    """Sequence index of each token, from 0."""
    old_logprobs_M: Tensor | None = None
    """Log-probs of the trainer before the first update of the batch; None for the first update."""


def policy_gradient(tokens: Tokens, algorithm: Algorithm) -> Tensor:
    """Policy-gradient losses [M], not averaged; tokens with a log-prob that is not finite get 0.
    With `ratio_to` "trainer" the ratio is to the trainer before the batch's first update, and
    `correction` weighs its difference to the sampler; with "sampler" the ratio includes both."""
    new_M = tokens.logprobs_M.detach()
    old_M = new_M if tokens.old_logprobs_M is None else tokens.old_logprobs_M
    known_M = (new_M - tokens.sampler_logprobs_M).isfinite() & (new_M - old_M).isfinite()
    tokens = tokens._replace(
        logprobs_M=tokens.logprobs_M.where(known_M, 0),
        sampler_logprobs_M=tokens.sampler_logprobs_M.where(known_M, 0),
    )
    old_M = old_M.where(known_M, 0)
    if algorithm.ratio_to == "sampler":
        old_M, weight_M = tokens.sampler_logprobs_M, torch.ones_like(new_M)
    else:
        gap_M = old_M - tokens.sampler_logprobs_M
        weight_M = correction(gap_M, tokens.sequences_M, algorithm.correction)
    return surrogate(tokens, old_M, algorithm.loss) * weight_M * known_M


def surrogate(tokens: Tokens, old_M: Tensor, loss: Clipped | Cispo | Gspo) -> Tensor:
    """Negative objective of each token [M], with the importance ratio to `old_M` (log-probs);
    formula and source are documented at the setting of `loss`."""
    advantages_M = tokens.advantages_M
    if isinstance(loss, Gspo):
        mean_M = sequence_mean((tokens.logprobs_M - old_M).detach(), tokens.sequences_M)
        ratio_M = _exp(mean_M + tokens.logprobs_M - tokens.logprobs_M.detach())
    else:
        ratio_M = _exp(tokens.logprobs_M - old_M)
    clipped_M = ratio_M.clamp(1 - loss.low, 1 + loss.high)
    if isinstance(loss, Cispo):
        return -clipped_M.detach() * advantages_M * tokens.logprobs_M
    return -torch.minimum(ratio_M * advantages_M, clipped_M * advantages_M)


def correction(gap_M: Tensor, sequences_M: Tensor, kind: Correction) -> Tensor:
    """Importance weights [M] without gradient from the log-prob gap trainer − sampler of each
    token, limited as `kind` says. `sequences_M`: sequence index of each token."""
    weight_M = _exp(gap_M)
    if isinstance(kind, TokenCap):
        return weight_M.clamp(max=kind.cap)
    if isinstance(kind, TokenMask):
        return weight_M * ((weight_M >= kind.low) & (weight_M <= kind.high))
    if isinstance(kind, SequenceMask):
        mean_M = _exp(sequence_mean(gap_M, sequences_M))
        return ((mean_M >= kind.low) & (mean_M <= kind.high)).to(gap_M.dtype)
    return torch.ones_like(gap_M)


def sequence_mean(values_M: Tensor, sequences_M: Tensor) -> Tensor:
    """Mean of the values of its sequence for each token [M]; `sequences_M` has the sequence index
    of each token."""
    counts = torch.bincount(sequences_M)
    sums = torch.zeros(len(counts), dtype=values_M.dtype, device=values_M.device)
    return (sums.index_add(0, sequences_M, values_M) / counts)[sequences_M]


def k3(logprobs_M: Tensor, reference_logprobs_M: Tensor) -> Tensor:
    """Per-token estimate [M] of KL(trainer ‖ reference), ≥ 0: e^d − d − 1 with d = ref − lp
    (Schulman, "Approximating KL divergence", 2020)."""
    difference_M = reference_logprobs_M - logprobs_M
    return _exp(difference_M) - difference_M - 1


def supervised(logprobs_M: Tensor) -> Tensor:
    """Cross-entropy of the demonstrated tokens, as losses [M]."""
    return -logprobs_M


def value_loss(values_M: Tensor, old_M: Tensor, returns_M: Tensor, clip: float) -> Tensor:
    """½ max((V − R)², (V_old + clip(V − V_old, ±clip) − R)²) of each token [M]: a value that has
    moved further than `clip` in this batch has no gradient unless it moved away from the return
    (PPO as released by OpenAI; verl `compute_value_loss`)."""
    near_M = old_M + (values_M - old_M).clamp(-clip, clip)
    return 0.5 * torch.maximum((values_M - returns_M).square(), (near_M - returns_M).square())


def value_metrics(values_M: Tensor, returns_M: Tensor) -> dict[str, float]:
    """Metrics: mean value, and share of the returns' variance that the values explain: 1 is
    perfect, 0 equals predicting the mean."""
    missed = (returns_M - values_M).var(correction=0)
    return {
        "value/mean": values_M.mean().item(),
        "value/explained": (1 - missed / returns_M.var(correction=0)).item(),
    }


def ratio_metrics(tokens: Tokens, algorithm: Algorithm) -> dict[str, float]:
    """Compute importance-ratio metrics of the trainer against the sampler over all trained tokens
    with finite log-probs. Clip fractions use the ratio to the trainer before the batch, if known.
    Without such tokens only `masked` is returned."""
    gap_M = tokens.logprobs_M - tokens.sampler_logprobs_M
    finite_M = gap_M.isfinite()
    gap_M, sequences_M = gap_M[finite_M], tokens.sequences_M[finite_M]
    if not len(gap_M):
        return {"masked": 1.0}
    size_M = gap_M.abs()
    ratio_M = _exp(gap_M)
    moved_M = ratio_M
    if tokens.old_logprobs_M is not None:
        moved_M = _exp((tokens.logprobs_M - tokens.old_logprobs_M)[finite_M])
    weight_M = correction(gap_M, sequences_M, algorithm.correction)
    return {
        "ratio/mean": ratio_M.mean().item(),
        "ratio/p1": ratio_M.quantile(0.01).item(),
        "ratio/p50": ratio_M.quantile(0.5).item(),
        "ratio/p99": ratio_M.quantile(0.99).item(),
        "ratio/max": ratio_M.max().item(),
        "clip/low": (moved_M < 1 - algorithm.loss.low).float().mean().item(),
        "clip/high": (moved_M > 1 + algorithm.loss.high).float().mean().item(),
        "masked": 1 - ((weight_M > 0).sum() / len(finite_M)).item(),
        "logprob_gap/max": size_M.max().item(),
        "logprob_gap/p99": size_M.quantile(0.99).item(),
        "logprob_gap/mean": size_M.mean().item(),
        "kl/sampler": k3(-gap_M, torch.zeros_like(gap_M)).mean().item(),
        "ess": (ratio_M.sum().square() / (ratio_M.square().sum() * len(ratio_M))).item(),
    }


def _exp(exponent: Tensor) -> Tensor:
    return exponent.clamp(-EXPONENT_LIMIT, EXPONENT_LIMIT).exp()
