"""Objectives over trained tokens. Pure tensor functions: values in, per-token losses out.

M trained tokens of whole sequences. r is the ratio of the update, w the weight that makes up for
the difference between trainer and sampler; exponents stay within ±20, and a token whose numbers are
not finite weighs nothing.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from engine.protocol.config import (
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
    """What is known of M trained tokens; natural logarithms."""

    logprobs_M: Tensor
    """The trainer's, with gradient."""
    sampler_logprobs_M: Tensor
    advantages_M: Tensor
    sequences_M: Tensor
    """Number of the sequence that each belongs to, from 0."""


def policy_gradient(tokens: Tokens, algorithm: Algorithm) -> Tensor:
    """Losses [M], not averaged.

    There is one optimizer step per batch: against the trainer itself the ratio is exactly 1 in
    value and carries the gradient, and the correction weighs what the sampler computed otherwise.
    Against the sampler the ratio is that difference, and there is nothing left to correct.
    """
    known_M = (tokens.logprobs_M - tokens.sampler_logprobs_M).detach().isfinite()
    tokens = tokens._replace(
        logprobs_M=tokens.logprobs_M.where(known_M, 0),
        sampler_logprobs_M=tokens.sampler_logprobs_M.where(known_M, 0),
    )
    trainer_M = tokens.logprobs_M.detach()
    if algorithm.ratio_to == "sampler":
        old_M, weight_M = tokens.sampler_logprobs_M, torch.ones_like(trainer_M)
    else:
        gap_M = trainer_M - tokens.sampler_logprobs_M
        old_M, weight_M = trainer_M, correction(gap_M, tokens.sequences_M, algorithm.correction)
    return surrogate(tokens, old_M, algorithm.loss) * weight_M * known_M


def surrogate(tokens: Tokens, old_M: Tensor, loss: Clipped | Cispo | Gspo) -> Tensor:
    """− objective of each token [M]; formula and source are with the setting of the same name."""
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
    """Weights [M] without gradient from the log-prob gap trainer − sampler."""
    weight_M = _exp(gap_M)
    if isinstance(kind, TokenCap):
        return weight_M.clamp(max=kind.cap)
    if isinstance(kind, TokenMask):
        return weight_M * ((weight_M >= kind.low) & (weight_M <= kind.high))
    if isinstance(kind, SequenceMask):
        mean_M = _exp(sequence_mean(gap_M, sequences_M))
        return ((mean_M >= kind.low) & (mean_M <= kind.high)).to(gap_M.dtype)
    return torch.ones_like(gap_M)


def share(sequences_M: Tensor, average: str) -> Tensor:
    """What each token counts [M] before the division by the batch's normaliser."""
    if average != "sequences":
        return torch.ones(len(sequences_M), device=sequences_M.device)
    return 1 / torch.bincount(sequences_M)[sequences_M].float()


def sequence_mean(values_M: Tensor, sequences_M: Tensor) -> Tensor:
    """Each token's sequence's mean [M]."""
    counts = torch.bincount(sequences_M)
    sums = torch.zeros(len(counts), dtype=values_M.dtype, device=values_M.device)
    return (sums.index_add(0, sequences_M, values_M) / counts)[sequences_M]


def k3(logprobs_M: Tensor, reference_logprobs_M: Tensor) -> Tensor:
    """KL(trainer ‖ reference) estimated token by token [M], ≥ 0: e^d − d − 1 with d = ref − lp
    (Schulman, "Approximating KL divergence", 2020)."""
    difference_M = reference_logprobs_M - logprobs_M
    return _exp(difference_M) - difference_M - 1


def supervised(logprobs_M: Tensor) -> Tensor:
    """Cross-entropy of the demonstrated tokens, as losses [M]."""
    return -logprobs_M


def ratio_metrics(
    logprobs_M: Tensor, sampler_logprobs_M: Tensor, sequences_M: Tensor, algorithm: Algorithm
) -> dict[str, float]:
    """How far the trainer's probabilities are from the sampler's, over all trained tokens."""
    gap_M = logprobs_M - sampler_logprobs_M
    finite_M = gap_M.isfinite()
    gap_M, sequences_M = gap_M[finite_M], sequences_M[finite_M]
    if not len(gap_M):
        return {"masked": 1.0}
    size_M = gap_M.abs()
    ratio_M = _exp(gap_M)
    weight_M = correction(gap_M, sequences_M, algorithm.correction)
    return {
        "ratio/mean": ratio_M.mean().item(),
        "ratio/p1": ratio_M.quantile(0.01).item(),
        "ratio/p50": ratio_M.quantile(0.5).item(),
        "ratio/p99": ratio_M.quantile(0.99).item(),
        "ratio/max": ratio_M.max().item(),
        "clip/low": (ratio_M < 1 - algorithm.loss.low).float().mean().item(),
        "clip/high": (ratio_M > 1 + algorithm.loss.high).float().mean().item(),
        "masked": 1 - ((weight_M > 0).sum() / len(finite_M)).item(),
        "logprob_gap/max": size_M.max().item(),
        "logprob_gap/p99": size_M.quantile(0.99).item(),
        "logprob_gap/mean": size_M.mean().item(),
        "kl/sampler": k3(sampler_logprobs_M[finite_M], logprobs_M[finite_M]).mean().item(),
        "ess": (ratio_M.sum().square() / (ratio_M.square().sum() * len(ratio_M))).item(),
    }


class SelectedLogProb(torch.autograd.Function):
    """log softmax(hidden · weightᵀ / T)[target] and the entropy, without keeping the logits.

    hidden [M, H], weight [V, H] (frozen), targets [M] → log-probs [M] and entropies [M], float32.
    The backward is closed, recomputed chunk by chunk, so memory is that of one chunk of logits
    whatever M is: d log p[target] = (onehot − p) / T, d entropy = −p (log p + entropy) / T.
    """

    CHUNK = 512

    @staticmethod
    def forward(
        ctx: Any, hidden_MH: Tensor, weight_VH: Tensor, targets_M: Tensor, temperature: float
    ) -> tuple[Tensor, Tensor]:
        pieces = []
        for hidden, targets in _chunks(hidden_MH, targets_M):
            logits = (hidden @ weight_VH.T).float() / temperature
            lse = logits.logsumexp(-1)
            chosen = logits.gather(-1, targets[:, None]).squeeze(-1) - lse
            logprobs = logits - lse[:, None]
            entropy = -(logprobs.exp() * logprobs).sum(-1)
            pieces.append((chosen, entropy, lse))
        chosen_M, entropy_M, lse_M = (torch.cat(part) for part in zip(*pieces, strict=True))
        ctx.save_for_backward(hidden_MH, weight_VH, targets_M, lse_M, entropy_M)
        ctx.temperature = temperature
        return chosen_M, entropy_M

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        hidden_MH, *known = ctx.saved_tensors
        weight_VH = known.pop(0)
        pieces = []
        for hidden, targets, lse, entropy, of_chosen, of_entropy in _chunks(
            hidden_MH, *known, *gradients
        ):
            logprobs = (hidden @ weight_VH.T).float() / ctx.temperature - lse[:, None]
            chances = logprobs.exp()
            slope = -chances * of_chosen[:, None]
            slope[torch.arange(len(targets), device=slope.device), targets] += of_chosen
            if of_entropy.any():
                slope -= chances * (logprobs + entropy[:, None]) * of_entropy[:, None]
            pieces.append((slope / ctx.temperature).to(hidden.dtype) @ weight_VH)
        return torch.cat(pieces), None, None, None


def _chunks(*tensors: Tensor) -> Any:
    return zip(*(tensor.split(SelectedLogProb.CHUNK) for tensor in tensors), strict=True)


def _exp(exponent: Tensor) -> Tensor:
    return exponent.clamp(-EXPONENT_LIMIT, EXPONENT_LIMIT).exp()
