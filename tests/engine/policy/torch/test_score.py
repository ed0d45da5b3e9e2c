"""Scores equal a forward pass; the value head is trained, saved and restored exactly."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from engine.policy.base import AdamStep, PolicySpec, ScoreBatch, TrainBatch, TrainItem
from engine.policy.torch.model.model import LoraModel
from engine.policy.torch.training.optimizer import Optimizer
from engine.policy.torch.training.trainer import forward_backward, score
from engine.protocol.config.algorithm import Algorithm
from engine.protocol.config.project import ModelConfig
from engine.protocol.problems import PolicyError

PPO = Algorithm(preset="ppo", updates=1)


def load(folder: Path, value_lr: float | None = 1e-2) -> LoraModel:
    model = LoraModel(
        PolicySpec(
            model_path=str(folder),
            model=ModelConfig(dtype="float32", rank=4, alpha=8),
            seed=0,
            batch_tokens=64,
            value_lr=value_lr,
        )
    )
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.adapter.values():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))
    return model


def items() -> list[TrainItem]:
    """Items with a shared prompt, one with an observation between two turns, two identical."""
    stem = [5, 9, 20, 31, 7]
    spans = [[(5, 9)], [(5, 7), (9, 12)], [(5, 9)], [(5, 12)]]
    tails = [[40, 41, 42, 43], [40, 50, 60, 61, 62, 63, 64], [40, 41, 42, 43], [70] * 7]
    return [
        TrainItem(tokens=stem + tail, spans=of_item)
        for tail, of_item in zip(tails, spans, strict=True)
    ]


def ignore_progress(done: int, total: int) -> None:
    pass


@torch.no_grad()
def plain(model: LoraModel, item: TrainItem) -> list[float]:
    logprobs = model.trained(input_ids=torch.tensor([item.tokens])).logits[0].log_softmax(-1)
    positions = [position for start, end in item.spans for position in range(start, end)]
    return [logprobs[position - 1, item.tokens[position]].item() for position in positions]


@pytest.mark.parametrize("budget", [1, 1000])
def test_scores_equal_plain_rows(tiny_model: Path, budget: int) -> None:
    model, batch = load(tiny_model), items()
    scores_ = score(
        model, ScoreBatch(items=batch, reference=True, values=True), budget, ignore_progress
    )
    for item, item_scores in zip(batch, scores_, strict=True):
        assert item_scores.logprobs == pytest.approx(plain(model, item), abs=1e-4)
        assert item_scores.values == [0.0] * len(item_scores.logprobs)
        with model.trained.disable_adapter():
            assert item_scores.reference == pytest.approx(plain(model, item), abs=1e-4)
    logprob_scores = score(model, ScoreBatch(items=batch), budget, ignore_progress)
    assert [b.logprobs for b in logprob_scores] == [f.logprobs for f in scores_]
    assert not any(b.reference or b.values for b in logprob_scores)
    assert all(p.grad is None for p in model.adapter.values())


def test_training_reproduces_the_scores(tiny_model: Path) -> None:
    """With the scores as sampler and old log-probs, every ratio is 1."""
    model = load(tiny_model)
    scores = score(model, ScoreBatch(items=items()), 1000, ignore_progress)
    batch = [
        item.model_copy(
            update={
                "logprobs": item_scores.logprobs,
                "old_logprobs": item_scores.logprobs,
                "advantages": [1.0] * len(item_scores.logprobs),
            }
        )
        for item, item_scores in zip(items(), scores, strict=True)
    ]
    metrics = forward_backward(model, TrainBatch(items=batch, normaliser=9), 1000, ignore_progress)
    assert metrics["logprob_gap/max"] <= 1e-6


def value_batch(model: LoraModel, target: float) -> TrainBatch:
    scores = score(model, ScoreBatch(items=items(), values=True), 64, ignore_progress)
    batch = [
        item.model_copy(
            update={
                "logprobs": item_scores.logprobs,
                "advantages": [0.1] * len(item_scores.logprobs),
                "values": item_scores.values,
                "returns": [target] * len(item_scores.logprobs),
            }
        )
        for item, item_scores in zip(items(), scores, strict=True)
    ]
    return TrainBatch(items=batch, algorithm=PPO, normaliser=18)


def update(model: LoraModel, optimizer: Optimizer, target: float = 0.5) -> dict[str, float]:
    metrics = forward_backward(model, value_batch(model, target), 64, ignore_progress)
    optimizer.step(AdamStep(lr=1e-2))
    assert model.value_head
    model.value_head.step(1.0)
    return metrics


def test_value_head_learns_the_expected_return(tiny_model: Path) -> None:
    model = load(tiny_model)
    optimizer = Optimizer(model.adapter)
    losses = [update(model, optimizer)["value/loss"] for _ in range(12)]
    assert losses[0] == pytest.approx(0.125)
    assert losses[-1] < 0.03


def test_value_head_and_moments_are_restored_exactly(tiny_model: Path, tmp_path: Path) -> None:
    model = load(tiny_model)
    optimizer = Optimizer(model.adapter)
    update(model, optimizer)
    model.save_adapter(tmp_path / "adapter", "base/name")
    optimizer.save(tmp_path / "optimizer.safetensors")
    assert model.value_head
    model.value_head.save(tmp_path)
    saved = load_file(tmp_path / "adapter" / "adapter_model.safetensors")
    assert all("lora_" in name for name in saved)
    update(model, optimizer)
    uninterrupted = [p.detach().clone() for p in model.adapter.values()]
    (tmp_path / "straight").mkdir()
    (tmp_path / "again").mkdir()
    model.value_head.save(tmp_path / "straight")
    restored = load(tiny_model)
    restored.load_adapter(tmp_path / "adapter")
    optimizer = Optimizer(restored.adapter)
    optimizer.load(tmp_path / "optimizer.safetensors")
    assert restored.value_head
    restored.value_head.load(tmp_path)
    update(restored, optimizer)
    restored.value_head.save(tmp_path / "again")
    assert all(
        torch.equal(a, b) for a, b in zip(uninterrupted, restored.adapter.values(), strict=True)
    )
    for name in ("value.safetensors", "value_optimizer.safetensors"):
        one, other = ((tmp_path / way / name).read_bytes() for way in ("straight", "again"))
        assert one == other


def test_values_without_a_value_head_are_rejected(tiny_model: Path) -> None:
    model = load(tiny_model, value_lr=None)
    assert model.value_head is None
    with pytest.raises(PolicyError, match="without a value head"):
        score(model, ScoreBatch(items=items(), values=True), 64, ignore_progress)
