"""Value head: predicts the expected reward from the final hidden state.

It is kept beside the adapter in the policy process and is not part of published and exported
weights.
"""

from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from engine.policy.base import AdamStep
from engine.policy.torch.training.optimizer import Optimizer
from engine.policy.torch.training.ranks import Ranks

WEIGHTS, MOMENTS = "value.safetensors", "value_optimizer.safetensors"


class ValueHead:
    """Value head V = w · h + b in float32, initially 0, with its own optimizer."""

    def __init__(self, hidden: int, lr: float, device: torch.device) -> None:
        self._linear = nn.Linear(hidden, 1, device=device, dtype=torch.float32)
        nn.init.zeros_(self._linear.weight)
        nn.init.zeros_(self._linear.bias)
        self._lr = lr
        self.forget()

    def __call__(self, hidden_NH: Tensor) -> Tensor:
        return self._linear(hidden_NH.float()).squeeze(-1)  # type: ignore[no-any-return]

    def step(self, max_grad_norm: float, ranks: Ranks | None = None) -> float:
        """Sum gradients over ranks, clip, update, clear; returns the norm before clipping."""
        return self._optimizer.step(AdamStep(lr=self._lr, max_grad_norm=max_grad_norm), ranks)

    def forget(self) -> None:
        """Reset gradients and the optimizer's moments."""
        self._linear.zero_grad(set_to_none=True)
        self._optimizer = Optimizer(dict(self._linear.named_parameters()))

    def save(self, folder: Path) -> None:
        weights = {n: p.detach().cpu().contiguous() for n, p in self._linear.named_parameters()}
        save_file(weights, folder / WEIGHTS)
        self._optimizer.save(folder / MOMENTS)

    def load(self, folder: Path) -> None:
        """Load weights and moments saved with a checkpoint; without any, only moments are reset."""
        self.forget()
        if not (folder / WEIGHTS).exists():
            return
        self._linear.load_state_dict(load_file(folder / WEIGHTS))
        self._optimizer.load(folder / MOMENTS)
