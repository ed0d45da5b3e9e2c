"""Comparison of trainer and sampler with plain transformers and PEFT.

The reference is one padded batch, computed by an unmodified model with eager attention and by
PEFT's own LoRA layers, loaded from the saved adapter.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from engine.policy.base import PolicySpec, TrainBatch, TrainItem
from engine.policy.torch.model.model import LoraModel
from engine.policy.torch.training.trainer import forward_backward
from engine.protocol.config.project import ModelConfig
from tests.engine.policy.architectures import SHAPE


def saved_model(kind: str, settings: dict[str, Any], folder: Path) -> Path:
    """Folder of a random model whose weights are far from uniform."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **(SHAPE | settings)))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(2)
            else:
                parameter.add_(0.1 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    return folder


def loaded(folder: Path, recompute: bool = False, **settings: Any) -> LoraModel:
    """Model with a non-zero adapter; `settings` are further ones of [model]."""
    config = ModelConfig(**({"dtype": "float32", "rank": 4, "alpha": 8} | settings))
    spec = PolicySpec(
        model_path=str(folder), model=config, seed=0, batch_tokens=99, recompute=recompute
    )
    model = LoraModel(spec)
    fill(model)
    return model


def fill(model: LoraModel) -> None:
    """Add random numbers to all factors of a model's adapter, always the same."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.adapter.values():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))


def losses(plain: nn.Module, items: list[TrainItem], given: Mapping[str, Tensor]) -> Tensor:
    """Minus the sum of advantage · log-prob over the trained tokens of the items, by one padded
    batch with the further arguments `given`. The log-probs must be those of the items."""
    rows, mask = padded(items)
    logits = plain(input_ids=rows, attention_mask=mask, use_cache=False, **given).logits.float()
    logprobs = logits[:, :-1].log_softmax(-1).gather(-1, rows[:, 1:, None])[..., 0]
    found = []
    for row, item in zip(logprobs, items, strict=True):
        trained = torch.cat([row[start - 1 : end - 1] for start, end in item.spans])
        torch.testing.assert_close(trained.detach(), torch.tensor(item.logprobs), rtol=0, atol=1e-4)
        found.append(-(torch.tensor(item.advantages) * trained).sum())
    return torch.stack(found).sum()


def padded(items: list[TrainItem]) -> tuple[Tensor, Tensor]:
    """Tokens of the items, padded with 0, and the mask of their own tokens, both [B, T]."""
    longest = max(len(item.tokens) for item in items)
    rows = torch.tensor([item.tokens + [0] * (longest - len(item.tokens)) for item in items])
    mask = torch.tensor([[int(n < len(item.tokens)) for n in range(longest)] for item in items])
    return rows, mask


def trained(model: LoraModel, items: list[TrainItem]) -> float:
    """Gradients of the items' loss in the adapter; returns the largest |Δ log-prob| to them."""
    normaliser = sum(len(item.logprobs) for item in items)
    batch = TrainBatch(items=[model.with_images(item) for item in items], normaliser=normaliser)
    metrics = forward_backward(model, batch, 200, lambda done, total: None)
    return metrics["logprob_gap/max"]


def assert_exact(
    name: str,
    model: LoraModel,
    base: PreTrainedModel,
    items: list[TrainItem],
    adapter: Path,
    given: Mapping[str, Tensor] | None = None,
    most: float = 1e-5,
) -> float:
    """Require that the model's gradients on sampled items are those of the unmodified `base` with
    PEFT's layers up to the relative difference `most`, of all factors together and of those of
    experts; `adapter` is a new folder for the adapter. Returns the difference."""
    gap = trained(model, items)
    assert gap <= 1e-4
    model.save_adapter(adapter, "base")
    plain = PeftModel.from_pretrained(base.eval(), adapter, is_trainable=True).eval()
    (losses(plain, items, given or {}) / sum(len(item.logprobs) for item in items)).backward()
    expected = {name: p.grad for name, p in plain.named_parameters() if p.requires_grad}
    assert expected.keys() == model.adapter.keys()
    relative = difference(model, expected)
    of_experts = {name: slope for name, slope in expected.items() if "experts" in name}
    if of_experts:
        relative = max(relative, difference(model, of_experts))
    print(f"{name}: gradient differs by {relative:.1e}, {gap:.1e} nats")
    assert relative <= most
    return relative


def difference(model: LoraModel, expected: Mapping[str, Tensor | None]) -> float:
    """‖gradient − expected‖ / ‖expected‖ over the named factors of the adapter."""
    square, error = 0.0, 0.0
    for name, wanted in expected.items():
        found = model.adapter[name].grad
        if wanted is not None:
            assert found is not None
            square += wanted.square().sum().item()
            error += (found - wanted).square().sum().item()
    assert square > 0
    return float((error / square) ** 0.5)
