"""Attention by segments, through transformers' attention interface.

A forward pass has one flat row of tokens [1, S] and a *plan*: which earlier keys and values each
segment of the row may see. With any plan, a token sees exactly its own path from the root, and no S
× S mask is created. Without a plan, rows are causal.

Shapes: B rows, S tokens of the row, T of a segment, L of its path; Q query heads, K key-value
heads, D per head. Keys and values of different sizes (MLA of DeepSeek, 2405.04434) are padded with
zeros to one D, which changes no product.
"""

from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, scaled_dot_product_attention
from transformers import AttentionInterface, PreTrainedConfig

from engine.models.architectures import FAMILIES
from engine.policy.torch.model.scoring import Scoring, weigh
from engine.protocol.problems import ModelError

NAME = "atelier_segments"
SHORT = 160
"""Tokens of a segment up to which its own part is computed without the fused kernel."""


class Plan(Protocol):
    """Attention plan of a forward pass: which positions each position sees."""

    tokens_1S: Tensor
    positions_1S: Tensor
    """Positions [1, S], or [3, 1, S] if the model reads images (images.py)."""

    def attend(
        self, layer: int, query_QSD: Tensor, key_KSD: Tensor, value_KSD: Tensor, scoring: Scoring
    ) -> Tensor:
        """Attention output [S, Q, D] of one layer."""
        ...


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    plan: Plan | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Attention function of the model's layers as transformers calls it; query [B, Q, S, D] → [B,
    S, Q, D]. Positions see each other by `plan`; without one, attention is causal. `softcap` bounds
    the logits, `s_aux` [Q] are the logits of attention sinks."""
    if others.get("position_bias") is not None:
        raise ModelError.of(
            "model.unusual_attention",
            "This model adds a bias to its attention logits, which is not supported.",
            f"Use a model of these families: {FAMILIES}.",
        )
    if attention_mask is not None or dropout:
        raise AssertionError("segments have neither masks nor dropout")
    scoring = Scoring(scaling, sliding_window, softcap or None, s_aux)
    size, width = value.shape[-1], max(query.shape[-1], value.shape[-1])
    query, key, value = (_widened(tensor, width) for tensor in (query, key, value))
    if plan is None:
        attended = causal(query, key, value, scoring).transpose(1, 2)
    else:
        attended = plan.attend(module.layer_idx, query[0], key[0], value[0], scoring)[None]
    return attended[..., :size], None


AttentionInterface.register(NAME, attend)


def implementation(config: PreTrainedConfig, name: str) -> str | dict[str, str]:
    """Value of `attn_implementation` by which the language model uses attention `name`; a vision
    model keeps that of torch."""
    if hasattr(config, "vision_config"):
        return {"text_config": name, "vision_config": "sdpa"}
    return name


def _widened(tensor: Tensor, width: int) -> Tensor:
    """Tensor [..., D] padded with zeros to [..., width]."""
    return pad(tensor, (0, width - tensor.shape[-1])) if tensor.shape[-1] < width else tensor


def causal(query_BQTD: Tensor, key_BKLD: Tensor, value_BKLD: Tensor, scoring: Scoring) -> Tensor:
    """Causal attention of the last T of L positions: [B, Q, T, D]."""
    length, past = query_BQTD.shape[2], key_BKLD.shape[2] - query_BQTD.shape[2]
    window, mask = scoring.window, None
    if past or (window and window < length) or not scoring.fused:
        mask = band(length, past, window, query_BQTD.device)
    if mask is not None and not scoring.fused:
        return weigh(query_BQTD, key_BKLD, value_BKLD, mask, scoring)
    if (groups := query_BQTD.shape[1] // key_BKLD.shape[1]) > 1:
        key_BKLD = key_BKLD.repeat_interleave(groups, 1)
        value_BKLD = value_BKLD.repeat_interleave(groups, 1)
    return scaled_dot_product_attention(
        query_BQTD,
        key_BKLD,
        value_BKLD,
        attn_mask=mask,
        is_causal=mask is None,
        scale=scoring.scale,
    )


class PathAttention(torch.autograd.Function):
    """Attention of siblings to their common path and, causally, to themselves.

    query [B, Q, T, D], own key and value [B, K, T, D], those of the path [K, L, D] → [B, Q, T, D].
    The path's keys are read once for all siblings and without a mask. The two parts are merged by
    their log-sum-exp (FlashAttention, 2205.14135); with the merged output and log-sum-exp, the
    backward of each part is exactly that part's share of the whole. The kernel's backward is slow
    at short lengths, so the attention probabilities of a short own part are computed explicitly.
    """

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        above: Tensor,
        above_value: Tensor,
        scale: float,
    ) -> Tensor:
        groups = query.shape[1] // key.shape[1]
        chances = None
        if query.shape[2] <= SHORT:
            own, own_lse, chances = _short(query, key, value, scale)
        else:
            wide = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
            own, own_lse = _flash(query, *wide, 0.0, True, scale=scale)
        path, path_lse = _flash(
            _fold(query, groups), above[None], above_value[None], 0.0, scale=scale
        )
        path, path_lse = _unfold(path, query), _unfold(path_lse[..., None], query)[..., 0]
        lse = torch.logaddexp(own_lse, path_lse)
        share = torch.sigmoid(own_lse - path_lse)[..., None]
        out = torch.lerp(path.to(share.dtype), own.to(share.dtype), share).to(query.dtype)
        if chances is not None:
            chances *= share.reshape(*chances.shape[:-1], 1)
        ctx.save_for_backward(query, key, value, above, above_value, out, lse, chances)
        ctx.scale, ctx.groups = scale, groups
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, above, above_value, out, lse, chances = ctx.saved_tensors
        groups, slope = ctx.groups, gradients[0]
        if chances is not None:
            own = _short_backward(slope, query, key, value, out, chances, ctx.scale)
        else:
            wide = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
            parts = _flash_backward(slope, query, *wide, out, lse, 0.0, True, scale=ctx.scale)
            own = parts[0], *(part.unflatten(1, (-1, groups)).sum(2) for part in parts[1:])
        path = _flash_backward(
            _fold(slope, groups),
            _fold(query, groups),
            above[None],
            above_value[None],
            _fold(out, groups),
            _fold(lse[..., None], groups)[..., 0],
            0.0,
            False,
            scale=ctx.scale,
        )
        return own[0] + _unfold(path[0], query), own[1], own[2], path[1][0], path[2][0], None


def _short(
    query_BQTD: Tensor, key_BKTD: Tensor, value_BKTD: Tensor, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Causal attention [B, Q, T, D], log-sum-exp [B, Q, T] and probabilities [B · K, g · T, T]."""
    length = query_BQTD.shape[2]
    query, key, value = (
        _batched(query_BQTD, key_BKTD),
        key_BKTD.flatten(0, 1),
        value_BKTD.flatten(0, 1),
    )
    exact = torch.promote_types(query.dtype, torch.float32)
    scores = torch.bmm(query.to(exact), key.to(exact).transpose(1, 2)).mul_(scale)
    later = torch.ones(length, length, dtype=torch.bool, device=key.device).triu(1)
    scores.masked_fill_(later.repeat(query.shape[1] // length, 1), -torch.inf)
    lse = scores.logsumexp(-1, keepdim=True)
    chances = scores.sub_(lse).exp_().to(query.dtype)
    return torch.bmm(chances, value).view_as(query_BQTD), lse.view(query_BQTD.shape[:-1]), chances


def _short_backward(
    slope_BQTD: Tensor,
    query_BQTD: Tensor,
    key_BKTD: Tensor,
    value_BKTD: Tensor,
    out_BQTD: Tensor,
    chances: Tensor,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    slope, query = _batched(slope_BQTD, key_BKTD), _batched(query_BQTD, key_BKTD)
    key, value = key_BKTD.flatten(0, 1), value_BKTD.flatten(0, 1)
    exact = torch.promote_types(query.dtype, torch.float32)
    mean = torch.linalg.vecdot(slope_BQTD.to(exact), out_BQTD.to(exact)).view(*slope.shape[:-1], 1)
    bent = torch.bmm(slope, value.transpose(1, 2)).to(exact).sub_(mean).mul_(chances).mul_(scale)
    bent = bent.to(query.dtype)
    return (
        torch.bmm(bent, key).view_as(query_BQTD),
        torch.bmm(bent.transpose(1, 2), query).view_as(key_BKTD),
        torch.bmm(chances.transpose(1, 2), slope).view_as(key_BKTD),
    )


def _batched(values_BQTD: Tensor, like_BKTD: Tensor) -> Tensor:
    """Queries with the g heads of a key-value head in one dimension: [B · K, g · T, D]."""
    count, heads, _, size = like_BKTD.shape
    return values_BQTD.reshape(count * heads, -1, size)


_flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_flash_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


def _fold(values_BQTX: Tensor, groups: int) -> Tensor:
    """Siblings and heads of a key-value head in one dimension: [1, K, B · g · T, X]."""
    return values_BQTX.unflatten(1, (-1, groups)).transpose(0, 1).flatten(1, 3)[None].contiguous()


def _unfold(values_1KSX: Tensor, like_BQTD: Tensor) -> Tensor:
    """Inverse of `_fold`: [B, Q, T, X]."""
    count, heads, length, _ = like_BQTD.shape
    key_heads = values_1KSX.shape[1]
    split = values_1KSX[0].unflatten(1, (count, heads // key_heads, length))
    return split.transpose(0, 1).flatten(1, 2)


def band(length: int, past: int, window: int | None, device: torch.device) -> Tensor:
    """Boolean mask [T, L] of causal attention for `length` = T queries after `past` earlier keys,
    True for visible keys; each sees its last `window` keys (None: all)."""
    full = torch.ones(length, past + length, dtype=torch.bool, device=device)
    seen = full.tril(past)
    return seen & full.triu(past - window + 1) if window else seen
