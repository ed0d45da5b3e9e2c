"""Models with linear attention: detected, computed row by row, and exact."""

from pathlib import Path

import pytest
import torch
from transformers.models.qwen3_5 import Qwen3_5ForCausalLM, Qwen3_5TextConfig

from engine.policy.base import SampledToken, SampleRequest, TrainBatch
from engine.policy.torch.model.model import LoraModel
from engine.policy.torch.sampling.sampler import AloneSampler
from engine.policy.torch.training.prefix_tree import TreePlan, grow
from engine.policy.torch.training.trainer import forward_backward
from tests.engine.policy.conftest import SHAPE, load
from tests.engine.policy.torch.training.test_prefix_tree import (
    packed_gradient,
    plain_gradient,
    sample_items,
)


@pytest.fixture(scope="module")
def hybrid(tmp_path_factory: pytest.TempPathFactory) -> LoraModel:
    """Model with one layer of full attention and two recurrent ones."""
    torch.manual_seed(0)
    config = Qwen3_5TextConfig(
        **SHAPE,
        layer_types=["linear_attention", "full_attention", "linear_attention"],
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        linear_key_head_dim=16,
        linear_value_head_dim=16,
    )
    folder: Path = tmp_path_factory.mktemp("hybrid")
    model = Qwen3_5ForCausalLM(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)
    model.save_pretrained(folder)
    return load(folder)


def test_recurrent_model_does_not_share_prefixes(hybrid: LoraModel, folder: Path) -> None:
    assert not hybrid.shares_prefixes
    assert load(folder).shares_prefixes


def test_recurrent_gradients_equal_single_rows(hybrid: LoraModel) -> None:
    items = sample_items()
    expected = plain_gradient(hybrid, items)
    assert (packed_gradient(hybrid, items, 10_000) - expected).norm() <= 1e-5 * expected.norm()


def test_recurrent_sampler_is_greedy_over_whole_rows(hybrid: LoraModel) -> None:
    sampled: dict[int, list[SampledToken]] = {0: [], 1: []}
    sampler = AloneSampler(hybrid, [], lambda n, token, end: sampled[n].append(token))
    prompts = [[5, 9, 23, 41], [7, 3, 60, 11, 19, 2]]
    for number, prompt in enumerate(prompts):
        sampler.add(number, SampleRequest(tokens=prompt, max_tokens=6, temperature=0, seed=number))
    while sampler.busy:
        sampler.step()
    for prompt, row_tokens in zip(prompts, sampled.values(), strict=True):
        tokens = list(prompt)
        for token in row_tokens:
            with torch.inference_mode():
                hidden = hybrid.hidden(TreePlan(grow([tokens]), hybrid.device))
                logprobs = hybrid.logits(hidden[-1:]).log_softmax(-1)[0]
            assert token.token == int(logprobs.argmax())
            assert token.logprob == pytest.approx(logprobs[token.token].item(), abs=1e-5)
            tokens.append(token.token)


def test_recurrent_training_computes_every_row_alone(hybrid: LoraModel) -> None:
    items = sample_items()
    batch = TrainBatch(items=items, normaliser=10)
    metrics = forward_backward(hybrid, batch, 10_000, lambda done, total: None)
    assert metrics["sharing/train"] == 1
