"""Scores are what a forward pass says; the value head learns, is kept, and changes no adapter."""

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
    """Siblings that share a prompt, one with an observation between two turns, two alike."""
    stem = [5, 9, 20, 31, 7]
    spans = [[(5, 9)], [(5, 7), (9, 12)], [(5, 9)], [(5, 12)]]
    tails = [[40, 41, 42, 43], [40, 50, 60, 61, 62, 63, 64], [40, 41, 42, 43], [70] * 7]
    return [
        TrainItem(tokens=stem + tail, spans=of_item)
        for tail, of_item in zip(tails, spans, strict=True)
    ]


def quiet(done: int, total: int) -> None:
    pass


@torch.no_grad()
def plain(model: LoraModel, item: TrainItem) -> list[float]:
    logprobs = model.trained(input_ids=torch.tensor([item.tokens])).logits[0].log_softmax(-1)
    places = [place for start, end in item.spans for place in range(start, end)]
    return [logprobs[place - 1, item.tokens[place]].item() for place in places]


@pytest.mark.parametrize("budget", [1, 1000])
def test_scores_are_those_of_plain_rows(tiny_model: Path, budget: int) -> None:
    model, batch = load(tiny_model), items()
    found = score(model, ScoreBatch(items=batch, reference=True, values=True), budget, quiet)
    for item, said in zip(batch, found, strict=True):
        assert said.logprobs == pytest.approx(plain(model, item), abs=1e-4)
        assert said.values == [0.0] * len(said.logprobs)
        with model.trained.disable_adapter():
            assert said.reference == pytest.approx(plain(model, item), abs=1e-4)
    bare = score(model, ScoreBatch(items=batch), budget, quiet)
    assert [b.logprobs for b in bare] == [f.logprobs for f in found]
    assert not any(b.reference or b.values for b in bare)
    assert all(p.grad is None for p in model.adapter.values())


def test_training_sees_what_was_scored(tiny_model: Path) -> None:
    """With the scores as the sampler's log-probs and as the old ones, every ratio is 1."""
    model = load(tiny_model)
    scores = score(model, ScoreBatch(items=items()), 1000, quiet)
    batch = [
        item.model_copy(
            update={
                "logprobs": said.logprobs,
                "old_logprobs": said.logprobs,
                "advantages": [1.0] * len(said.logprobs),
            }
        )
        for item, said in zip(items(), scores, strict=True)
    ]
    metrics = forward_backward(model, TrainBatch(items=batch, normaliser=9), 1000, quiet)
    assert metrics["logprob_gap/max"] <= 1e-6


def valued(model: LoraModel, goal: float) -> TrainBatch:
    scores = score(model, ScoreBatch(items=items(), values=True), 64, quiet)
    batch = [
        item.model_copy(
            update={
                "logprobs": said.logprobs,
                "advantages": [0.1] * len(said.logprobs),
                "values": said.values,
                "returns": [goal] * len(said.logprobs),
            }
        )
        for item, said in zip(items(), scores, strict=True)
    ]
    return TrainBatch(items=batch, algorithm=PPO, normaliser=18)


def update(model: LoraModel, optimizer: Optimizer, goal: float = 0.5) -> dict[str, float]:
    metrics = forward_backward(model, valued(model, goal), 64, quiet)
    optimizer.step(AdamStep(lr=1e-2))
    assert model.value_head
    model.value_head.step(1.0)
    return metrics


def test_the_value_head_learns_what_to_expect(tiny_model: Path) -> None:
    model = load(tiny_model)
    optimizer = Optimizer(model.adapter)
    losses = [update(model, optimizer)["value/loss"] for _ in range(12)]
    assert losses[0] == pytest.approx(0.125)
    assert losses[-1] < 0.03


def test_the_value_head_and_its_moments_come_back_to_the_byte(
    tiny_model: Path, tmp_path: Path
) -> None:
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
    straight = [p.detach().clone() for p in model.adapter.values()]
    (tmp_path / "straight").mkdir()
    (tmp_path / "again").mkdir()
    model.value_head.save(tmp_path / "straight")
    again = load(tiny_model)
    again.load_adapter(tmp_path / "adapter")
    optimizer = Optimizer(again.adapter)
    optimizer.load(tmp_path / "optimizer.safetensors")
    assert again.value_head
    again.value_head.load(tmp_path)
    update(again, optimizer)
    again.value_head.save(tmp_path / "again")
    assert all(torch.equal(a, b) for a, b in zip(straight, again.adapter.values(), strict=True))
    for name in ("value.safetensors", "value_optimizer.safetensors"):
        one, other = ((tmp_path / way / name).read_bytes() for way in ("straight", "again"))
        assert one == other


def test_without_a_head_values_are_refused(tiny_model: Path) -> None:
    model = load(tiny_model, value_lr=None)
    assert model.value_head is None
    with pytest.raises(PolicyError, match="without a value head"):
        score(model, ScoreBatch(items=items(), values=True), 64, quiet)
