"""LoRA on the routed experts of a mixture: for the tokens x of expert e, y = x Wₑᵀ + bₑ + s (x Aₑᵀ)
Bₑᵀ (LoRA, 2106.09685).

PEFT targets the stacked weights as parameters: it creates, names, saves and loads A and B. Its
forward pass adds a product of the full size of the weights; here the factors are applied to the
tokens of each expert, as `LoraLinear` applies its own, with the backward in closed form.

P pairs of a token and an expert, ordered by expert; E experts, K experts per token, S tokens, H
hidden, I inputs, O outputs of a projection, r rank.
"""

from itertools import accumulate
from typing import Any, NamedTuple

import torch
from peft.tuners.lora.layer import ParamWrapper
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel

from engine.protocol.problems import ModelError

ALIGNED_BYTES = 16
"""Strides of the inputs of grouped products on a GPU are multiples of it."""
ALIGNED_RANK = 8
"""On a GPU, factors are padded to a multiple of this rank."""


def stacked(base: nn.Module) -> dict[str, nn.Module]:
    """Modules of routed experts by name whose weights are stacked parameters with the experts
    interface of transformers (`use_experts_implementation`)."""
    return {
        name: part
        for name, part in base.named_modules()
        if type(part).__name__.endswith("Experts")
        and all(hasattr(part, mark) for mark in ("has_gate", "has_bias", "is_transposed"))
    }


def projections(experts: nn.Module) -> list[str]:
    """Names of the stacked weights of a module of experts, in the order in which PEFT nests their
    adapters: the first one is the innermost."""
    wanted = {"gate_up_proj" if experts.has_gate else "up_proj", "down_proj"}
    return [name for name, _ in experts.named_parameters(recurse=False) if name in wanted]


def target_parameters(base: PreTrainedModel) -> list[str]:
    """Names of the stacked weights of all experts. Raises ModelError if the model has no experts
    with stacked weights."""
    found = stacked(base.get_decoder())
    if not found:
        raise ModelError.of(
            "model.no_stacked_experts",
            f"model.adapt_experts is on, but {type(base).__name__} has no experts whose weights "
            "are stacked as transformers stacks them.",
            "Set model.adapt_experts to false.",
            where="model.adapt_experts",
        )
    names = {id(part): name for name, part in base.named_modules()}
    return [f"{names[id(part)]}.{name}" for part in found.values() for name in projections(part)]


class Factors(NamedTuple):
    """Trained factors of one stacked weight, and their cast copies."""

    a: Tensor
    """A of all experts [E · r, I], by expert and rank."""
    b: Tensor
    """B of all experts [O, r · E], by rank and expert."""
    down_ErI: Tensor
    up_EOr: Tensor
    """s · B."""
    scale: float


class RoutedExperts(ParamWrapper):
    """Experts with LoRA on one of their stacked weights; the wrapper of the next weight is nested
    in it. The outermost one computes: states [S, H], experts [S, K], weights [S, K] → [S, H]."""

    _cast: tuple[tuple[Any, ...], Tensor, Tensor] | None = None

    def forward(self, x_SH: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        experts = self.get_base_layer()
        if self.disable_adapters:
            return experts(x_SH, *args, **kwargs)  # type: ignore[no-any-return]
        return self._routed(experts, x_SH, *args, **kwargs)

    def _routed(
        self, experts: Any, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor
    ) -> Tensor:
        tokens, each = top_k_index.shape
        expert_P, order_P = top_k_index.flatten().sort(stable=True)
        count_E = torch.bincount(expert_P, minlength=self.num_experts)
        x_PH = hidden_states.index_select(0, order_P // each)
        if experts.has_gate:
            x_PI = experts._apply_gate(self._project("gate_up_proj", x_PH, expert_P, count_E))
        else:
            x_PI = experts.act_fn(self._project("up_proj", x_PH, expert_P, count_E))
        y_PH = self._project("down_proj", x_PI, expert_P, count_E)
        y_PH = y_PH * top_k_weights.flatten()[order_P, None]
        place_P = torch.empty_like(order_P)
        place_P[order_P] = torch.arange(len(order_P), device=order_P.device)
        y_SKH = y_PH.index_select(0, place_P).view(tokens, each, -1)
        return y_SKH.sum(1).to(hidden_states.dtype)

    def _project(self, name: str, x_PI: Tensor, expert_P: Tensor, count_E: Tensor) -> Tensor:
        """Outputs [P, O] of one projection of each pair's expert."""
        experts: Any = self.get_base_layer()
        weight = getattr(experts, name)
        weight_EOI = weight.transpose(1, 2) if experts.is_transposed else weight
        bias_PO = getattr(experts, f"{name}_bias")[expert_P] if experts.has_bias else None
        factors = self._of(name).factors(weight.dtype)
        return Routed.apply(x_PI.to(weight.dtype), weight_EOI, bias_PO, count_E, *factors)  # type: ignore[no-any-return]

    def _of(self, name: str) -> "RoutedExperts":
        """Wrapper of the weight of this name among the nested ones."""
        layer: Any = self
        while layer.parameter_name != name:
            layer = layer.base_layer
        return layer  # type: ignore[no-any-return]

    def factors(self, dtype: torch.dtype) -> Factors:
        """Trained factors, and copies in `dtype`, which are cached until the factors change. PEFT
        stores A as [E · r, I] and B as [O, r · E] (`ParamWrapper.get_delta_weight`)."""
        a, b = self.lora_A["default"].weight, self.lora_B["default"].weight
        scale, state = self.scaling["default"], (a._version, b._version, a.data_ptr(), dtype)
        if self._cast is None or self._cast[0] != state:
            with torch.inference_mode(False), torch.no_grad():
                down_ErI = a.view(self.num_experts, -1, a.shape[1])
                up_EOr = (b * scale).view(len(b), -1, self.num_experts).permute(2, 0, 1)
                if a.is_cuda and (missing := -down_ErI.shape[1] % ALIGNED_RANK):
                    down_ErI = functional.pad(down_ErI, (0, 0, 0, missing))
                    up_EOr = functional.pad(up_EOr, (0, missing))
                self._cast = (state, down_ErI.to(dtype), up_EOr.to(dtype).contiguous())
        return Factors(a, b, self._cast[1], self._cast[2], scale)


def route(model: nn.Module) -> None:
    """Let all wrappers that PEFT made for stacked weights compute as `RoutedExperts`. PEFT nests
    wrappers by the name of their class, so it is changed after they were made."""
    for part in model.modules():
        if type(part) is ParamWrapper:
            part.__class__ = RoutedExperts


class Routed(torch.autograd.Function):
    """Function of x [P, I], weight [E, O, I] (frozen), bias [P, O] (frozen) or None, the number of
    pairs of each expert [E], A, B, their cast copies and the scale → [P, O]. The gradients of A and
    B are in float32; those of experts without tokens are 0."""

    @staticmethod
    def forward(
        ctx: Any,
        x_PI: Tensor,
        weight_EOI: Tensor,
        bias_PO: Tensor | None,
        count_E: Tensor,
        a: Tensor,
        b: Tensor,
        down_ErI: Tensor,
        up_EOr: Tensor,
        scale: float,
    ) -> Tensor:
        groups = Groups(count_E, x_PI, weight_EOI, up_EOr)
        low_Pr = groups.times(x_PI, down_ErI)
        y_PO = groups.times(x_PI, weight_EOI)
        y_PO += groups.times(low_Pr, up_EOr)
        if bias_PO is not None:
            y_PO += bias_PO
        ctx.save_for_backward(x_PI, weight_EOI, down_ErI, up_EOr, low_Pr)
        ctx.groups, ctx.scale, ctx.shapes = groups, scale, (a.shape, b.shape)
        return y_PO

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x_PI, weight_EOI, down_ErI, up_EOr, low_Pr = ctx.saved_tensors
        groups, slope_PO = ctx.groups, gradients[0].contiguous()
        slope_Pr = groups.times(slope_PO, up_EOr.transpose(1, 2))
        slope_x = None
        if ctx.needs_input_grad[0]:
            slope_x = groups.times(slope_PO, weight_EOI.transpose(1, 2))
            slope_x += groups.times(slope_Pr, down_ErI.transpose(1, 2))
        (pairs, inputs), (outputs, _) = ctx.shapes
        rank = pairs // len(weight_EOI)
        slope_ErI = groups.outer(slope_Pr, x_PI)[:, :rank].float()
        slope_EOr = groups.outer(slope_PO, low_Pr)[..., :rank].float() * ctx.scale
        slope_a = slope_ErI.reshape(pairs, inputs)
        slope_b = slope_EOr.permute(1, 2, 0).reshape(outputs, pairs)
        return slope_x, None, None, None, slope_a, slope_b, None, None, None


class Groups:
    """Products of rows that are grouped by expert: one kernel on a GPU that has grouped products,
    else one product for each expert that has rows. oneDNN, as in `linear`, would compile a kernel
    for each number of rows."""

    def __init__(self, count_E: Tensor, x_PI: Tensor, weight_EOI: Tensor, up_EOr: Tensor) -> None:
        self._count_E = count_E
        self._grouped = x_PI.is_cuda and _can_group(x_PI, weight_EOI, up_EOr)
        if self._grouped:
            self._ends_E = count_E.cumsum(0, dtype=torch.int32)
        else:
            ends = list(accumulate(count_E.tolist()))
            pairs = zip([0, *ends], ends, strict=False)
            self._rows = [(e, slice(*pair)) for e, pair in enumerate(pairs) if pair[0] < pair[1]]

    def times(self, x_PI: Tensor, weight_EOI: Tensor) -> Tensor:
        """Product x Wₑᵀ of each row with the weight of its expert: [P, O]."""
        if self._grouped:
            return functional.grouped_mm(x_PI, weight_EOI.transpose(1, 2), offs=self._ends_E)
        y_PO = x_PI.new_empty(len(x_PI), weight_EOI.shape[1])
        for expert, rows in self._rows:
            torch.mm(x_PI[rows], weight_EOI[expert].T, out=y_PO[rows])
        return y_PO

    def outer(self, left_PM: Tensor, right_PN: Tensor) -> Tensor:
        """Product of the rows of each expert: leftₑᵀ rightₑ [E, M, N]; 0 without rows."""
        if self._grouped:
            found = functional.grouped_mm(left_PM.T, right_PN, offs=self._ends_E)
            return found.masked_fill_((self._count_E == 0)[:, None, None], 0)
        found = left_PM.new_zeros(len(self._count_E), left_PM.shape[1], right_PN.shape[1])
        for expert, rows in self._rows:
            torch.mm(left_PM[rows].T, right_PN[rows], out=found[expert])
        return found


def _can_group(*tensors: Tensor) -> bool:
    """Whether a GPU has grouped products of these tensors: bfloat16, with aligned rows."""
    device = tensors[0].device
    return (
        all(one.dtype == torch.bfloat16 for one in tensors)
        and all(side * 2 % ALIGNED_BYTES == 0 for one in tensors for side in one.shape[1:])
        and torch.cuda.get_device_capability(device) >= (8, 0)
    )
