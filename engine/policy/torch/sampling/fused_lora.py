"""LoRA layers fused for sampling: layers with the same input are computed in one product.

With few rows, a product is limited by kernel launch and by reading the weights. Layers with the
same input tensor (query, key and value; gate and up) therefore form a bundle: their weights and
their A stacked in one packed copy, their s·B as the blocks of one matrix. Formula and precision are
those of `LoraLinear`; `publish` compares the two.

S rows, I inputs, O outputs of all layers together, R = layers · r.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from engine.policy.torch.model.adapter import LoraLinear
from engine.policy.torch.model.linear import Packed, pack, packed_linear

ROWS = 32
"""Number of sequences for which the packed copies are optimised."""


class Bundle:
    """Layers with one input. The first call computes all outputs; the last one releases them."""

    def __init__(self, layers: list[LoraLinear]) -> None:
        self._layers = layers
        self.on = False
        self._trained = [factor for layer in layers for factor in layer.factors]
        self._version = -1
        self._x: Tensor | None = None
        self._outputs: dict[int, Tensor] = {}

    def __call__(self, layer: LoraLinear, x: Tensor) -> Tensor:
        """Output of the layer for x [..., I]."""
        if self._x is not x or id(layer) not in self._outputs:
            self._x, self._outputs = x, self._compute(x)
        output = self._outputs.pop(id(layer))
        if not self._outputs:
            self._x = None
        return output

    def _compute(self, x: Tensor) -> dict[int, Tensor]:
        self._renew()
        y = packed_linear(x.reshape(-1, x.shape[-1]), self._weight, self._bias)
        split = len(self._up_RO[0])
        y[:, :split].addmm_(y[:, split:], self._up_RO)
        parts = y[:, :split].view(*x.shape[:-1], split).split(self._widths, -1)
        return {id(layer): part for layer, part in zip(self._layers, parts, strict=True)}

    def _renew(self) -> None:
        """Rebuild the packed copies if the optimizer or a checkpoint has changed the adapter."""
        version = sum(factor._version for factor in self._trained)
        if version == self._version:
            return
        bases = [layer.get_base_layer() for layer in self._layers]
        casts = [
            layer.casts(base.weight.dtype) for layer, base in zip(self._layers, bases, strict=True)
        ]
        weights = [*(base.weight for base in bases), *(down for down, _, _ in casts)]
        self._widths = [len(base.weight) for base in bases]
        self._weight: Packed | Tensor = pack(torch.cat(weights), ROWS)
        self._up_RO = torch.block_diag(*(up.T for _, up, _ in casts))
        self._bias = None
        if any(base.bias is not None for base in bases):
            zeros = [weight.new_zeros(len(weight)) for weight in weights]
            given = [base.bias for base in bases] + [None] * len(casts)
            pairs = zip(given, zeros, strict=True)
            self._bias = torch.cat([zero if bias is None else bias for bias, zero in pairs])
        self._version = version


class Bundles:
    """All bundles of a model, found by tracing one forward pass."""

    def __init__(self, model: nn.Module, probe: Callable[[], object]) -> None:
        self._bundles: list[Bundle] = []
        for layers in _with_equal_inputs(model, probe):
            bundle = Bundle(layers)
            self._bundles.append(bundle)
            for layer in layers:
                layer.bundle = bundle

    @contextmanager
    def used(self) -> Iterator[None]:
        """Fuse layers that have the same input into one matrix product during the block. Gradients
        are not supported in it."""
        for bundle in self._bundles:
            bundle.on = True
        try:
            yield
        finally:
            for bundle in self._bundles:
                bundle.on = False


def _with_equal_inputs(model: nn.Module, probe: Callable[[], object]) -> list[list[LoraLinear]]:
    """Consecutive layers that receive the same input tensor object."""
    calls: list[tuple[LoraLinear, Tensor]] = []
    hooks = [
        layer.register_forward_pre_hook(lambda layer, inputs: calls.append((layer, inputs[0])))
        for layer in model.modules()
        if isinstance(layer, LoraLinear)
    ]
    try:
        probe()
    finally:
        for hook in hooks:
            hook.remove()
    groups: list[list[LoraLinear]] = []
    last = None
    for layer, x in calls:
        if x is last:
            groups[-1].append(layer)
        else:
            groups.append([layer])
        last = x
    return groups
