"""SFT loss and gradient equal transformers' on the same tokens."""

import json
from pathlib import Path

import pytest
import torch

from engine.policy.base import ScoreBatch, TrainBatch, TrainItem
from engine.policy.torch.model.model import LoraModel
from engine.policy.torch.training.trainer import forward_backward, score
from engine.rollout.rendering.chat import ChatFormat
from engine.training.sft.data import render
from engine.training.sft.formats import read_line
from engine.training.step.batch import trained_tokens
from tests.engine.policy.conftest import load

IGNORED = -100
LINES = [
    {
        "messages": [
            {"role": "user", "content": f"What is {n} + {n}?"},
            {"role": "assistant", "content": f"It is {2 * n}."},
            {"role": "user", "content": "Sure?"},
            {"role": "assistant", "content": "Yes" * n},
        ]
    }
    for n in range(1, 5)
] + [{"prompt": "2 + 2 =", "completion": " 4"}, {"text": "Once upon a time"}]


@pytest.fixture
def model(tiny_model: Path) -> LoraModel:
    model = load(tiny_model)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():  # B starts at 0; a non-zero adapter tests more
        for parameter in model.adapter.values():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))
    return model


@pytest.fixture
def items(tiny_model: Path) -> list[TrainItem]:
    lines = [json.dumps(value).encode() for value in LINES]
    with ChatFormat(tiny_model) as chat:
        return [item for line in lines for item in render(read_line(line), chat, 1000)]


def reference_loss(model: LoraModel, items: list[TrainItem]) -> torch.Tensor:
    """Loss by transformers of one padded batch with labels: mean over the trained tokens."""
    width = max(len(item.tokens) for item in items)
    ids = torch.zeros(len(items), width, dtype=torch.long)
    mask, labels = torch.zeros_like(ids), torch.full_like(ids, IGNORED)
    for row, item in enumerate(items):
        ids[row, : len(item.tokens)] = torch.tensor(item.tokens)
        mask[row, : len(item.tokens)] = 1
        for start, end in item.spans:
            labels[row, start:end] = ids[row, start:end]
    loss: torch.Tensor = model.trained(input_ids=ids, attention_mask=mask, labels=labels).loss
    return loss


def gradients(model: LoraModel) -> dict[str, torch.Tensor]:
    gradients_ = {name: p.grad.clone() for name, p in model.adapter.items() if p.grad is not None}
    model.trained.zero_grad(set_to_none=True)
    return gradients_


@pytest.mark.parametrize("batch_tokens", [40, 10_000])
def test_loss_and_gradient_equal_transformers(
    model: LoraModel, items: list[TrainItem], batch_tokens: int
) -> None:
    expected = reference_loss(model, items)
    expected.backward()  # type: ignore[no-untyped-call]
    expected_gradients = gradients(model)
    count = sum(map(trained_tokens, items))
    batch = TrainBatch(items=items, objective="supervised", normaliser=count)
    metrics = forward_backward(model, batch, batch_tokens, lambda done, total: None)
    assert metrics["loss"] == pytest.approx(expected.item(), rel=1e-5)
    gradients_ = gradients(model)
    assert gradients_.keys() == expected_gradients.keys()
    scale = max(g.abs().max() for g in expected_gradients.values())
    for name, gradient in expected_gradients.items():
        assert (gradients_[name] - gradient).abs().max() <= 1e-5 * scale


def test_held_out_loss_equals_transformers(model: LoraModel, items: list[TrainItem]) -> None:
    scores = score(model, ScoreBatch(items=items), 99, lambda done, total: None)
    logprobs = [value for one in scores for value in one.logprobs]
    with torch.no_grad():
        expected = reference_loss(model, items).item()
    assert -sum(logprobs) / len(logprobs) == pytest.approx(expected, rel=1e-5)
