"""Objectives over trained tokens. Pure tensor functions: values in, per-token losses out."""

from typing import Any

import torch
from torch import Tensor

from engine.protocol.config import Algorithm

EXPONENT_LIMIT = 20.0


def policy_gradient(
    logprobs_M: Tensor, sampler_logprobs_M: Tensor, advantages_M: Tensor, algorithm: Algorithm
) -> Tensor:
    """Clipped surrogate with truncated importance sampling, as losses [M].

    There is one optimizer step per batch, so the proximal policy is the current one: its ratio is
    exactly 1 in value and carries the gradient (PPO, 1707.06347; asymmetric clip, DAPO 2503.14476).
    What differs between sampler and trainer is corrected by min(exp(lp − lp_sampler), C), without
    gradient (truncated importance sampling; C is `importance_cap`).
    """
    proximal_M = logprobs_M.detach()
    ratio_M = _exp(logprobs_M - proximal_M)
    clipped_M = ratio_M.clamp(1 - algorithm.clip_low, 1 + algorithm.clip_high)
    weight_M = _exp(proximal_M - sampler_logprobs_M).clamp(max=algorithm.importance_cap)
    return -weight_M * torch.minimum(ratio_M * advantages_M, clipped_M * advantages_M)


def supervised(logprobs_M: Tensor) -> Tensor:
    """Cross-entropy of the demonstrated tokens, as losses [M]."""
    return -logprobs_M


def ratio_metrics(
    logprobs_M: Tensor, sampler_logprobs_M: Tensor, algorithm: Algorithm
) -> dict[str, float]:
    """How far the trainer's probabilities are from the sampler's, over all trained tokens."""
    gap_M = logprobs_M - sampler_logprobs_M
    ratio_M = _exp(gap_M)
    return {
        "ratio/mean": ratio_M.mean().item(),
        "ratio/p99": ratio_M.quantile(0.99).item(),
        "clip/low": (ratio_M < 1 - algorithm.clip_low).float().mean().item(),
        "clip/high": (ratio_M > 1 + algorithm.clip_high).float().mean().item(),
        "logprob_gap/max": gap_M.abs().max().item(),
        "logprob_gap/mean": gap_M.abs().mean().item(),
        "ess": (ratio_M.sum().square() / (ratio_M.square().sum() * len(ratio_M))).item(),
    }


class SelectedLogProb(torch.autograd.Function):
    """log softmax(hidden · weightᵀ / T)[target] and the entropy, without keeping the logits.

    hidden [M, H], weight [V, H] (frozen), targets [M] → log-probs [M] and entropies [M], float32.
    The backward is closed: d logits = (onehot − softmax) / T, recomputed chunk by chunk, so memory
    is that of one chunk of logits whatever M is.
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
        ctx.save_for_backward(hidden_MH, weight_VH, targets_M, lse_M)
        ctx.temperature = temperature
        ctx.mark_non_differentiable(entropy_M)
        return chosen_M, entropy_M

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        hidden_MH, weight_VH, targets_M, lse_M = ctx.saved_tensors
        pieces = []
        for hidden, targets, lse, gradient in _chunks(hidden_MH, targets_M, lse_M, gradients[0]):
            logits = (hidden @ weight_VH.T).float() / ctx.temperature
            slope = -(logits - lse[:, None]).exp() * gradient[:, None]
            slope[torch.arange(len(targets), device=slope.device), targets] += gradient
            pieces.append((slope / ctx.temperature).to(hidden.dtype) @ weight_VH)
        return torch.cat(pieces), None, None, None


def _chunks(*tensors: Tensor) -> Any:
    return zip(*(tensor.split(SelectedLogProb.CHUNK) for tensor in tensors), strict=True)


def _exp(exponent: Tensor) -> Tensor:
    return exponent.clamp(-EXPONENT_LIMIT, EXPONENT_LIMIT).exp()
