"""AdamW against its formula: clipping, moments, decoupled weight decay."""

import pytest
import torch
from torch import nn

from engine.policy.base import AdamStep
from engine.policy.torch.training.optimizer import Optimizer
from engine.protocol.config.algorithm import Algorithm


@pytest.mark.parametrize(("decay", "most"), [(0.0, 1.0), (0.1, 0.1), (0.0, 1e9)])
def test_adamw_matches_the_paper(decay: float, most: float) -> None:
    """Reference: 1711.05101, algorithm 2, with the gradient clipped to a maximum norm first."""
    generator = torch.Generator().manual_seed(0)
    weight = nn.Parameter(torch.randn(5, 3, generator=generator))
    expected = weight.detach().double()
    first, second = torch.zeros_like(expected), torch.zeros_like(expected)
    optimizer = Optimizer({"w": weight})
    for number, lr in ((1, 1e-2), (2, 3e-3)):
        gradient = torch.randn(5, 3, generator=generator)
        weight.grad = gradient.clone()
        norm = optimizer.step(AdamStep(lr=lr, weight_decay=decay, max_grad_norm=most))
        assert norm == pytest.approx(gradient.norm().item())
        clipped = gradient.double() * min(1.0, most / (norm + 1e-6))
        first = 0.9 * first + 0.1 * clipped
        second = 0.99 * second + 0.01 * clipped**2
        expected *= 1 - lr * decay
        rms = (second / (1 - 0.99**number)).sqrt()
        expected -= lr * (first / (1 - 0.9**number)) / (rms + 1e-8)
        torch.testing.assert_close(weight.detach().double(), expected, rtol=0, atol=1e-6)
        assert weight.grad is None


def test_art_preset_has_the_clipping_and_decay_of_art() -> None:
    """openpipe-art 0.5.18: `get_model_config` and `run_unsloth_rl_training`; test_art.py reads
    them from the package."""
    art = Algorithm(preset="art")
    assert (art.max_grad_norm, art.weight_decay) == (0.1, 0.1)
    assert (Algorithm().max_grad_norm, Algorithm().weight_decay) == (1.0, 0.0)
