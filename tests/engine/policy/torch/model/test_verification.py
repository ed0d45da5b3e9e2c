"""Models that the trainer computes differently from transformers are rejected at load."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from transformers import (
    GPTJConfig,
    GPTJForCausalLM,
    LlamaConfig,
    PhiConfig,
    PhiForCausalLM,
    PreTrainedModel,
)

from engine.policy.base import PolicySpec, SampledToken, SampleRequest, TrainBatch, TrainItem
from engine.policy.torch.model import loading
from engine.policy.torch.model.model import LoraModel
from engine.policy.torch.model.verification import plain_forward, refuse_changing_positions
from engine.policy.torch.sampling.sampler import Sampler
from engine.policy.torch.training.trainer import forward_backward
from engine.protocol.config.project import ModelConfig
from engine.protocol.problems import ModelError
from tests.engine.policy.conftest import SHAPE, load

GPT = {"vocab_size": 97, "bos_token_id": 1, "eos_token_id": 2}


def save_model(model: PreTrainedModel, folder: Path) -> Path:
    """Save with weights far from uniform, so that any omission shows."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)
        if (bias := getattr(model.get_output_embeddings(), "bias", None)) is not None:
            bias.normal_()
    model.save_pretrained(folder)
    return folder


def spec(folder: Path, dtype: str) -> PolicySpec:
    config = ModelConfig(dtype=dtype, rank=4, alpha=8)
    return PolicySpec(model_path=str(folder), model=config, seed=0, batch_tokens=99)


def loader_with_change(change: Callable[[Any], None]) -> loading.Loader:
    """Loader whose model applies `change` to its own output."""

    def loader(spec: PolicySpec, dtype: torch.dtype, device: torch.device) -> PeftModel:
        trained = loading.load(spec, dtype, device)
        base = trained.get_base_model()
        forward = base.forward

        def forward_with_change(*args: Any, **named: Any) -> Any:
            output = forward(*args, **named)
            change(output)
            return output

        base.forward = forward_with_change
        return trained

    return loader


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("what", ["scaled", "capped", "biased"])
def test_logits_changed_after_the_head_are_rejected(
    tiny_model: Path, dtype: str, what: str
) -> None:
    def change(output: Any) -> None:
        logits = output.logits
        output.logits = {
            "scaled": logits * 1.5,
            "capped": logits.div(0.5).tanh() * 0.5,
            "biased": logits + torch.linspace(-1, 1, logits.shape[-1], dtype=logits.dtype),
        }[what]

    with pytest.raises(ModelError, match=r"nats per token from transformers"):
        LoraModel(spec(tiny_model, dtype), loader_with_change(change))


def test_layers_computed_differently_are_rejected(tiny_model: Path) -> None:
    with pytest.raises(ModelError, match=r"states differ by [\d.]+%"):
        LoraModel(spec(tiny_model, "float32"), with_window(4))


def with_window(size: int) -> loading.Loader:
    """Loader whose model attends to `size` positions while ours attends to all."""

    def loader(spec: PolicySpec, dtype: torch.dtype, device: torch.device) -> PeftModel:
        trained = loading.load(spec, dtype, device)

        def hide(module: Any, args: Any, named: dict[str, Any]) -> Any:
            if (mask := named.get("attention_mask")) is not None:
                far = torch.ones_like(mask, dtype=torch.bool).tril(-size)
                named["attention_mask"] = mask.masked_fill(far, torch.finfo(mask.dtype).min)
            return args, named

        for layer in trained.get_base_model().get_decoder().layers:
            layer.self_attn.register_forward_pre_hook(hide, with_kwargs=True)
        return trained

    return loader


def test_custom_attention_code_is_rejected(tmp_path: Path) -> None:
    gptj = GPTJForCausalLM(GPTJConfig(**GPT, n_embd=48, n_layer=2, n_head=6, rotary_dim=8))
    with pytest.raises(ModelError, match="own attention code"):
        load(save_model(gptj, tmp_path / "gptj"))


@pytest.mark.parametrize("nested", [False, True])
def test_context_within_which_positions_change_is_rejected(nested: bool) -> None:
    rope = {"rope_type": "longrope", "original_max_position_embeddings": 128}
    config = LlamaConfig()
    config.rope_parameters = {"full_attention": rope} if nested else rope
    refuse_changing_positions(config, 128)
    with pytest.raises(ModelError, match=r"change in rows longer than 128 tokens"):
        refuse_changing_positions(config, 129)
    refuse_changing_positions(LlamaConfig(), 10**6)


def test_gradient_with_biased_head_equals_transformers(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = load(
        save_model(PhiForCausalLM(PhiConfig(**SHAPE | {"hidden_size": 192})), tmp_path / "p")
    )
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.adapter.values():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))
    tokens = torch.randint(97, (40,), generator=generator)
    item = TrainItem(tokens=tokens.tolist(), spans=[(20, 40)])
    batch = TrainBatch(items=[item], objective="supervised", normaliser=20)
    forward_backward(model, batch, 99, lambda done, total: None)
    ours = torch.cat([p.grad.flatten() for p in model.adapter.values() if p.grad is not None])
    model.trained.zero_grad(set_to_none=True)
    _, logits = plain_forward(model.trained, tokens)
    logprobs = logits[19:-1].log_softmax(-1).gather(-1, tokens[20:, None])
    (-logprobs.sum() / 20).backward()
    plain = torch.cat([p.grad.flatten() for p in model.adapter.values() if p.grad is not None])
    difference = ((ours - plain).norm() / plain.norm()).item()
    print(f"gradient under a biased head: {difference:.2e} relative difference")
    assert difference < 1e-5


def test_sampler_with_biased_head_equals_transformers(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = load(
        save_model(PhiForCausalLM(PhiConfig(**SHAPE | {"hidden_size": 192})), tmp_path / "p")
    )
    sampled: list[SampledToken] = []
    sampler = Sampler(model, [], lambda number, token, finish: sampled.append(token))
    sampler.add(0, SampleRequest(tokens=[5, 9, 31], max_tokens=12, temperature=0.0, seed=0))
    while sampler.busy:
        sampler.step()
    tokens = torch.tensor([5, 9, 31] + [token.token for token in sampled])
    with torch.inference_mode():
        _, logits = plain_forward(model.trained, tokens)
    assert logits[2:-1].argmax(-1).tolist() == [token.token for token in sampled]
    logprobs = logits[2:-1].log_softmax(-1).gather(-1, tokens[3:, None])[:, 0]
    torch.testing.assert_close(
        torch.tensor([token.logprob for token in sampled]), logprobs, rtol=0, atol=1e-4
    )
