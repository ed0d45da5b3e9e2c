"""Scoring of keys by an attention layer: scale and sliding window, and the variants of some
families.

Fused kernels compute scaled and masked logits only. Capped logits and attention sinks are computed
here, by blocks of queries.

Shapes as in `attention`: B rows, T queries, L keys; Q query heads, K key-value heads, D per head.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

BLOCK_WEIGHTS = 1 << 24
"""Attention weights that a block of queries may have, over all rows and heads: 64 MB."""


class Scoring(NamedTuple):
    """Scoring of keys by one attention layer."""

    scale: float
    window: int | None = None
    """Positions that a token sees, itself included; None for all."""
    cap: float | None = None
    """Bound c of the logits, which become c · tanh(logit / c) before the mask (Gemma 2,
    2408.00118); None for unbounded ones."""
    sinks_Q: Tensor | None = None
    """Logit of one additional key per query head, which every token sees and which has no value
    (gpt-oss, 2508.10925); None without."""

    @property
    def fused(self) -> bool:
        """Whether the fused kernels compute this scoring."""
        return self.cap is None and self.sinks_Q is None


def weigh(
    query_BQTD: Tensor, key_BKLD: Tensor, value_BKLD: Tensor, seen: Tensor, scoring: Scoring
) -> Tensor:
    """Attention [B, Q, T, D] with capped logits and sinks. `seen` [T, L] or [B, T, L]: whether a
    query sees a key. The weights of a block of queries are computed again for the backward pass, so
    that memory grows with T + L instead of T · L. A sink counts once, however the keys are
    joined."""
    length, rows = query_BQTD.shape[2], query_BQTD.shape[0] * query_BQTD.shape[1]
    block = max(1, BLOCK_WEIGHTS // (rows * key_BKLD.shape[2]))
    seen = seen.reshape(-1, 1, 1, *seen.shape[-2:])
    outputs = []
    for start in range(0, length, block):
        chosen = slice(start, start + block)
        given = query_BQTD[:, :, chosen], key_BKLD, value_BKLD, seen[..., chosen, :], scoring
        if torch.is_grad_enabled() and block < length:
            outputs.append(
                checkpoint(_weigh_block, *given, use_reentrant=False, preserve_rng_state=False)
            )
        else:
            outputs.append(_weigh_block(*given))
    return torch.cat(outputs, 2) if len(outputs) > 1 else outputs[0]


def _weigh_block(
    query_BQTD: Tensor, key_BKLD: Tensor, value_BKLD: Tensor, seen: Tensor, scoring: Scoring
) -> Tensor:
    count, heads, length, size = query_BQTD.shape
    key_heads = key_BKLD.shape[1]
    folded = query_BQTD.reshape(count, key_heads, -1, size)
    exact = torch.promote_types(query_BQTD.dtype, torch.float32)
    logits = (folded @ key_BKLD.transpose(2, 3)).to(exact) * scoring.scale
    if scoring.cap is not None:
        logits = scoring.cap * torch.tanh(logits / scoring.cap)
    logits = logits.view(count, key_heads, heads // key_heads, length, -1)
    logits = logits.masked_fill(~seen, -torch.inf)
    if scoring.sinks_Q is None:
        weights = logits.softmax(-1)
    else:
        sinks = scoring.sinks_Q.to(exact).view(1, key_heads, -1, 1, 1)
        sinks = sinks.expand(*logits.shape[:-1], 1)
        weights = torch.cat([logits, sinks], -1).softmax(-1)[..., :-1]
    folded = weights.to(value_BKLD.dtype).reshape(count, key_heads, -1, logits.shape[-1])
    return (folded @ value_BKLD).reshape(count, heads, length, -1)
