"""Features come from the plain base model, whatever the adapter and the batch."""

import asyncio
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from engine.policy.base import Pair, PolicySpec, TrainItem
from engine.policy.torch.model.features import features
from engine.policy.torch.model.model import LoraModel
from engine.protocol.config.project import ModelConfig
from tests.engine.policy.conftest import load
from tests.engine.policy.torch.sampling.test_recurrent import hybrid  # noqa: F401 - a fixture
from tests.engine.policy.torch.test_score import items
from tests.support.engine_starter import forked_policy


def load_with_adapter(folder: Path) -> LoraModel:
    model = load(folder)
    with torch.no_grad():
        for parameter in model.adapter.values():
            parameter.add_(0.3)
    return model


@torch.no_grad()
def plain(folder: Path, item: TrainItem) -> torch.Tensor:
    """Features by transformers: means at half of the depth, the last token at two thirds."""
    base = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    end = item.spans[-1][1]
    tokens = torch.tensor([item.tokens[:end]])
    states = base(input_ids=tokens, output_hidden_states=True).hidden_states
    depth = len(states) - 1
    positions = [position for span in item.spans for position in range(*span)]
    mean = states[round(depth / 2)][0, positions].mean(0)
    return torch.cat([mean, states[round(2 * depth / 3)][0, end - 1]])


@pytest.mark.parametrize("budget", [1, 1000])
def test_features_equal_the_plain_base_model(folder: Path, budget: int) -> None:
    model = load_with_adapter(folder)
    rows = features(model, items(), budget)
    for item, row in zip(items(), rows, strict=True):
        assert torch.allclose(row, plain(folder, item), atol=1e-3, rtol=1e-4)
    assert torch.equal(rows[0], rows[2])  # identical items
    assert not any(parameter.grad is not None for parameter in model.adapter.values())


def test_features_are_unchanged_by_the_adapter(tiny_model: Path) -> None:
    model = load(tiny_model)
    before = features(model, items(), 64)
    with torch.no_grad():
        for parameter in model.adapter.values():
            parameter.add_(0.3)
    assert torch.equal(features(model, items(), 64), before)


def test_tokens_after_the_last_sampled_one_are_ignored(tiny_model: Path) -> None:
    model, item = load(tiny_model), items()[0]
    longer = item.model_copy(update={"tokens": [*item.tokens, 88, 89]})
    assert torch.equal(features(model, [longer], 64), features(model, [item], 64))


def test_recurrent_model_computes_features_row_by_row(hybrid: LoraModel) -> None:  # noqa: F811
    assert not hybrid.shares_prefixes
    together = features(hybrid, items(), 1000)
    for item, row in zip(items(), together, strict=True):
        assert torch.equal(features(hybrid, [item], 1000)[0], row)


def test_policy_process_returns_the_same_features(tiny_model: Path, tmp_path: Path) -> None:
    spec = PolicySpec(
        model_path=str(tiny_model),
        model=ModelConfig(dtype="float32", rank=4, alpha=8),
        seed=0,
        batch_tokens=64,
    )

    async def work() -> None:
        async with forked_policy(tmp_path / "log") as policy:
            await policy.load(spec)
            assert await policy.features([]) == []
            rows = await policy.features(items())
            assert torch.allclose(torch.tensor(rows), features(load(tiny_model), items(), 64))
            model = await policy.fit_preferences(rows, [Pair(0, 1, 0), Pair(0, 3, 1)])
            assert len(model.weights) == len(rows[0])
            assert model.count == 2

    asyncio.run(work())
