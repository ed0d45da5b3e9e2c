"""Log-probs of chosen tokens without storing the logits.

The gradient of log p[target] by the hidden state is (weight[target] − Σ_v p_v weight_v) / T, which
does not depend on the loss (a bias of the head changes p alone). So one pass over the vocabulary,
in blocks that fit the CPU cache and with a running maximum (online softmax, 1805.02867), yields
log-probs and gradients together: 4·V·H operations per token instead of the 6·V·H of a recomputed
backward.

Families that scale or cap their logits (`LogitTransform`) multiply each logit's gradient by the
derivative of that. A grammar's mask removes tokens before the softmax: p is 0 for them, and so is
their part of every gradient.

M tokens, V vocabulary, H hidden, T temperature, W = ceil(V / 32) words of a mask.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedConfig

from engine.policy.torch.model.grammar import WORD, unpack
from engine.policy.torch.model.linear import times

ROWS = 1024
BLOCK = 2048
FORBIDDEN = -1e30
"""Scaled logit of a token that a grammar forbids: e^x is 0, and sums stay finite in a block without
an allowed token."""


SCALES = {"logit_scale": 1, "lm_head_multiplier": 1, "logits_scaling": -1}
"""Config keys of a factor of the logits (1) or of their divisor (-1)."""
MULTIPLYING = ("hyperclovax",)
"""Model types whose `logits_scaling` is a factor."""
CAPS = ("final_logit_softcapping", "logits_soft_cap")
"""Config keys of a bound of the logits: Gemma 2 and later, RecurrentGemma."""


class LogitTransform(NamedTuple):
    """Change of the logits after the output layer: x becomes cap · tanh(scale · x / cap), or scale
    · x without a cap."""

    scale: float = 1.0
    cap: float | None = None

    @classmethod
    def of(cls, config: PreTrainedConfig) -> "LogitTransform":
        """Transform that a language model's config describes."""
        scale = 1.0
        for key, power in SCALES.items():
            power = 1 if config.model_type in MULTIPLYING else power
            scale *= (getattr(config, key, None) or 1.0) ** power
        return cls(scale, next((c for key in CAPS if (c := getattr(config, key, None))), None))

    def apply_(self, logits: Tensor) -> Tensor | None:
        """Change float32 logits in place. Returns the derivative of the cap at each of them, None
        without a cap; `scale` is not in it."""
        if self.scale != 1.0:
            logits *= self.scale
        if self.cap is None:
            return None
        bound = logits.div_(self.cap).tanh_()
        slopes = 1 - bound * bound
        logits *= self.cap
        return slopes


UNCHANGED = LogitTransform()


class Scores(NamedTuple):
    logprobs_M: Tensor
    entropies_M: Tensor
    slopes_MH: Tensor | None
    """Gradients d log-prob / d hidden."""
    entropy_slopes_MH: Tensor | None
    """Gradients d entropy / d hidden."""


class SelectedLogProb(torch.autograd.Function):
    """Autograd function log softmax(transform(hidden · weightᵀ + bias) / T)[target] and the
    entropy.

    hidden [M, H], weight [V, H] and bias [V] or None (frozen), targets [M] → log-probs [M] and
    entropies [M], float32. `entropy_slope`: whether the entropy has a gradient too; without, it is
    a metric only. `masks` [M, W]: tokens that are allowed, each target among them; None allows all.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden_MH: Tensor,
        weight_VH: Tensor,
        bias_V: Tensor | None,
        targets_M: Tensor,
        temperature: float,
        entropy_slope: bool = False,
        transform: LogitTransform = UNCHANGED,
        masks_MW: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        learns = ctx.needs_input_grad[0]
        bends = learns and entropy_slope
        hiddens, targets = hidden_MH.split(ROWS), targets_M.split(ROWS)
        masks = [None] * len(hiddens) if masks_MW is None else masks_MW.split(ROWS)
        parts = [
            score(hidden, weight_VH, bias_V, target, temperature, learns, bends, transform, mask)
            for hidden, target, mask in zip(hiddens, targets, masks, strict=True)
        ]
        logprobs_M, entropies_M, slopes, entropy_slopes = (
            torch.cat(column) if column[0] is not None else None
            for column in zip(*parts, strict=True)
        )
        ctx.save_for_backward(slopes, entropy_slopes)
        ctx.dtype = hidden_MH.dtype
        if not entropy_slope:
            ctx.mark_non_differentiable(entropies_M)
        return logprobs_M, entropies_M

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        slopes_MH, entropy_slopes_MH = ctx.saved_tensors
        slope_MH = gradients[0][:, None] * slopes_MH
        if entropy_slopes_MH is not None:
            slope_MH += gradients[1][:, None] * entropy_slopes_MH
        return slope_MH.to(ctx.dtype), *[None] * 7


class Room:
    """Buffers for blocks of logits, reused: the page faults of new ones cost more than the sums."""

    def __init__(self, hidden_MH: Tensor, width: int) -> None:
        size = len(hidden_MH) * width
        self._rows = len(hidden_MH)
        self._logits = hidden_MH.new_empty(size)
        self._x = hidden_MH.new_empty(size, dtype=torch.float32)
        self._e = torch.empty_like(self._x)

    def of(self, width: int) -> tuple[Tensor, Tensor, Tensor]:
        """Three views [M, width] of the buffers: one in the model's precision, two in float32."""
        size = self._rows * width
        logits, x, e = self._logits[:size], self._x[:size], self._e[:size]
        return logits.view(-1, width), x.view(-1, width), e.view(-1, width)


def score(
    hidden_MH: Tensor,
    weight_VH: Tensor,
    bias_V: Tensor | None,
    targets_M: Tensor,
    temperature: float,
    slopes: bool,
    entropy_slopes: bool,
    transform: LogitTransform = UNCHANGED,
    masks_MW: Tensor | None = None,
) -> Scores:
    """Log-probs and entropies [M] of target tokens in one pass over the vocabulary, with their
    gradients by the hidden states if wanted (`slopes`, `entropy_slopes`), among the tokens that
    `masks_MW` allows. With x the scaled logits
    minus their running maximum `top`, it sums e^x, x·e^x and, for the gradients, e^x · weight and
    x·e^x · weight, times the derivative of `transform` at each logit."""
    count, width = len(hidden_MH), min(BLOCK, len(weight_VH))
    first = hidden_MH.new_full((count, 1), -torch.inf, dtype=torch.float32)
    top, chosen, chosen_slopes = first, torch.empty_like(first), torch.ones_like(first)
    total = torch.zeros_like(first)
    moment = torch.zeros_like(first)
    pull = torch.zeros(hidden_MH.shape, device=hidden_MH.device) if slopes else None
    bent = torch.zeros_like(pull) if pull is not None and entropy_slopes else None
    room = Room(hidden_MH, width)
    for start in range(0, len(weight_VH), BLOCK):
        weight = weight_VH[start : start + BLOCK]
        bias = None if bias_V is None else bias_V[start : start + BLOCK]
        logits, x, e = room.of(len(weight))
        x.copy_(times(hidden_MH, weight, bias))
        steps = transform.apply_(x)
        if temperature != 1.0:
            x /= temperature
        if masks_MW is not None:
            words = masks_MW[:, start // WORD : -(-(start + len(weight)) // WORD)]
            torch.where(unpack(words, len(weight)), x, x.new_tensor(FORBIDDEN), out=x)
        inside = (targets_M >= start) & (targets_M < start + len(weight))
        chosen[inside, 0] = x[inside, targets_M[inside] - start]
        if steps is not None:
            chosen_slopes[inside, 0] = steps[inside, targets_M[inside] - start]
        new = torch.maximum(top, x.amax(-1, keepdim=True))
        shift = (top - new).clamp(min=-1e4)
        kept = shift.exp()
        torch.exp(x.sub_(new), out=e)
        moment = (moment + shift * total) * kept + torch.linalg.vecdot(e, x)[:, None]
        total = total * kept + e.sum(-1, keepdim=True)
        if steps is not None:
            e *= steps
        if bent is not None:
            assert pull is not None
            bent = (bent + shift * pull) * kept + times((e * x).to(weight.dtype), weight.T).float()
        if pull is not None:
            pull.mul_(kept).add_(times(logits.copy_(e), weight.T))
        top = new
    log_total = total.log()
    entropy = log_total - moment / total
    slope = bend = None
    if pull is not None:
        factor = transform.scale / temperature
        slope = (chosen_slopes * weight_VH[targets_M].float() - pull / total) * factor
    if bent is not None and pull is not None:
        # d entropy / d logits = −p (log p + entropy), with log p = x − log total
        bend = -(bent + (entropy - log_total) * pull) / total * (transform.scale / temperature)
    return Scores((chosen - top - log_total)[:, 0], entropy[:, 0], slope, bend)
