"""Optimizer of the trained weights, with saved state."""

from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from engine.policy.base import AdamStep
from engine.policy.torch.training.ranks import Ranks


class Optimizer:
    """AdamW (0.9, 0.99) on float32 parameters by name."""

    def __init__(self, parameters: dict[str, nn.Parameter]) -> None:
        self._parameters = parameters
        self._adam = torch.optim.AdamW(parameters.values(), betas=(0.9, 0.99), eps=1e-8)

    def step(self, step: AdamStep, ranks: Ranks | None = None) -> float:
        """Sum gradients over the ranks (None: no others), clip, update weights, clear gradients;
        returns the norm before clipping."""
        if ranks:
            ranks.sum_gradients(self._parameters.values())
        norm = nn.utils.clip_grad_norm_(list(self._parameters.values()), step.max_grad_norm)
        for group in self._adam.param_groups:
            group |= {"lr": step.lr, "weight_decay": step.weight_decay}
        self._adam.step()
        self.clear()
        return norm.item()

    def clear(self) -> None:
        self._adam.zero_grad(set_to_none=True)

    def save(self, file: Path) -> None:
        tensors = {}
        for name, parameter in self._parameters.items():
            for key, value in self._adam.state.get(parameter, {}).items():
                tensors[f"{name}/{key}"] = value.detach().cpu().contiguous()
        save_file(tensors, file)

    def load(self, file: Path) -> None:
        saved = load_file(file)
        for name, parameter in self._parameters.items():
            keys = ("step", "exp_avg", "exp_avg_sq")
            if f"{name}/step" in saved:
                state = {key: saved[f"{name}/{key}"].clone() for key in keys}
                self._adam.state[parameter] = {
                    k: v if k == "step" else v.to(parameter.device) for k, v in state.items()
                }
