"""LoRA layers that compute in the precision of the frozen weights.

The adapter's weights stay in float32 for the optimizer and are cast once per update. PEFT creates,
names, saves and loads them; here is the computation: y = x Wᵀ + b + s (x Aᵀ) Bᵀ (LoRA, 2106.09685),
with the backward in closed form, so that a layer stores only its input and the r-wide product.
"""

from typing import Any, Protocol

import torch
from peft.tuners import lora
from torch import Tensor

from engine.policy.torch.model.linear import times


class ForwardOverride(Protocol):
    """Alternative computation of a layer's output, used while it is on."""

    on: bool

    def __call__(self, layer: "LoraLinear", x: Tensor) -> Tensor: ...


class LoraLinear(lora.Linear):
    """Linear layer with one LoRA adapter, no dropout, not merged. Input [..., in] → [..., out]."""

    bundle: "ForwardOverride | None" = None
    _cast: tuple[tuple[int, int], Tensor, Tensor] | None = None

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if self.bundle is not None and self.bundle.on:
            return self.bundle(self, x)
        if self.disable_adapters:
            return self.base_layer(x)  # type: ignore[no-any-return]
        base = self.get_base_layer()
        x_SI = x.reshape(-1, x.shape[-1])
        y_SO = Adapted.apply(x_SI, base.weight, base.bias, *self.factors, *self.casts(x.dtype))
        return y_SO.view(*x.shape[:-1], -1)  # type: ignore[no-any-return]

    @property
    def factors(self) -> tuple[Tensor, Tensor]:
        """Trained factors A [r, I] and B [O, r]."""
        return self.lora_A["default"].weight, self.lora_B["default"].weight

    def casts(self, dtype: torch.dtype) -> tuple[Tensor, Tensor, float]:
        """Return A and s·B in `dtype` (cached until they change), and the LoRA scale s."""
        down, up = self.factors
        versions = (down._version, up._version)
        scale = self.scaling["default"]
        if self._cast is None or self._cast[0] != versions:
            with torch.inference_mode(False), torch.no_grad():
                self._cast = (versions, down.to(dtype), (up * scale).to(dtype))
        return self._cast[1], self._cast[2], scale


class Adapted(torch.autograd.Function):
    """Function of x [S, I], weight [O, I] (frozen), bias [O] or None, A [r, I], B [O, r] → [S, O].

    `down` and `up` are the cast A and s·B; the gradients go to A and B, in float32.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x_SI: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        _a: Tensor,
        _b: Tensor,
        down: Tensor,
        up: Tensor,
        scale: float,
    ) -> Tensor:
        low_Sr = times(x_SI, down)
        y_SO = times(x_SI, weight, bias).addmm_(low_Sr, up.T)
        ctx.save_for_backward(x_SI, weight, down, up, low_Sr)
        ctx.scale = scale
        return y_SO

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x_SI, weight, down, up, low_Sr = ctx.saved_tensors
        slope_SO = gradients[0]
        slope_Sr = times(slope_SO, up.T)
        slope_x = None
        if ctx.needs_input_grad[0]:
            slope_x = times(slope_SO, weight.T).addmm_(slope_Sr, down)
        slope_a = times(slope_Sr.T, x_SI.T).float()
        slope_b = times(low_Sr.T, slope_SO.T).T.float() * ctx.scale
        return slope_x, None, None, slope_a, slope_b, None, None, None
