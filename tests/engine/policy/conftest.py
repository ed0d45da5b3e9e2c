"""Fixtures: tiny models of the families that trainer and sampler support exactly."""

from pathlib import Path

import pytest
import torch
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from engine.policy.base import PolicySpec
from engine.policy.torch.model.model import LoraModel
from engine.protocol.config.project import ModelConfig

SHAPE = {
    "vocab_size": 97,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 512,
}
WINDOW = 12
FAMILIES: dict[str, tuple[type[PreTrainedModel], PreTrainedConfig]] = {
    "llama": (LlamaForCausalLM, LlamaConfig(**SHAPE, tie_word_embeddings=True)),
    "qwen2": (
        Qwen2ForCausalLM,
        Qwen2Config(**SHAPE, use_sliding_window=True, sliding_window=WINDOW, max_window_layers=2),
    ),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config(**SHAPE)),
    "mistral": (MistralForCausalLM, MistralConfig(**SHAPE, sliding_window=WINDOW)),
    "gemma3": (
        Gemma3ForCausalLM,
        Gemma3TextConfig(
            **SHAPE,
            sliding_window=WINDOW,
            layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        ),
    ),
}


@pytest.fixture(params=sorted(FAMILIES))
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    kind, config = FAMILIES[request.param]
    torch.manual_seed(0)
    model = kind(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)  # far from uniform: a wrong key would change the tokens
    model.save_pretrained(tmp_path / request.param)
    return tmp_path / request.param


def load(folder: Path) -> LoraModel:
    config = ModelConfig(dtype="float32", rank=4, alpha=8)
    return LoraModel(PolicySpec(model_path=str(folder), model=config, seed=0, batch_tokens=99))
