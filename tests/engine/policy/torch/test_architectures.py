"""Every supported model type: sampler, trainer and gradients equal plain transformers and PEFT.

The reference is one padded batch, computed by an unmodified model with eager attention and by
PEFT's own LoRA layers, loaded from the saved adapter.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from engine.models.architectures import UNSUPPORTED, architecture_problem, causal_types
from engine.policy.base import SampleRequest, TrainBatch, TrainItem
from engine.policy.torch.model.model import LoraModel
from engine.policy.torch.sampling.sampler import AloneSampler, Sampler
from engine.policy.torch.training.trainer import forward_backward
from tests.engine.policy.architectures import ROWS, SHAPE, TREES
from tests.engine.policy.conftest import load

PROMPT_TOKENS, SAMPLED_TOKENS, SIBLINGS = 18, 6, 3


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


def loaded(folder: Path) -> LoraModel:
    """Model with a non-zero adapter."""
    model = load(folder)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.adapter.values():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))
    return model


def sampled_group(model: LoraModel) -> list[TrainItem]:
    """Siblings of two prompts, of which the second extends the first."""
    prompts = [[3 + 7 * n * n % 250 for n in range(length)] for length in (PROMPT_TOKENS, 25)]
    rows: dict[int, list[Any]] = {number: [] for number in range(2 * SIBLINGS)}
    kind = Sampler if model.shares_prefixes else AloneSampler
    sampler = kind(model, [], lambda number, token, end: rows[number].append(token))
    for number in rows:
        prompt = prompts[number // SIBLINGS]
        count = SAMPLED_TOKENS + number
        sampler.add(number, SampleRequest(tokens=prompt, max_tokens=count, seed=number))
    while sampler.busy:
        sampler.step()
    items = []
    for number, tokens in rows.items():
        prompt = prompts[number // SIBLINGS]
        items.append(
            TrainItem(
                tokens=prompt + [one.token for one in tokens],
                spans=[(len(prompt), len(prompt) + len(tokens))],
                logprobs=[one.logprob for one in tokens],
                advantages=[(-1.0) ** number * (1 + number / 4)] * len(tokens),
            )
        )
    return items


def padded_losses(folder: Path, adapter: Path, items: list[TrainItem]) -> tuple[PeftModel, Tensor]:
    """Plain model with PEFT's adapter, and minus the sum of advantage · log-prob over the trained
    tokens, by one padded batch."""
    base = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()
    plain = PeftModel.from_pretrained(base, adapter, is_trainable=True).eval()
    longest = max(len(item.tokens) for item in items)
    rows = torch.tensor([item.tokens + [0] * (longest - len(item.tokens)) for item in items])
    mask = torch.tensor([[int(n < len(item.tokens)) for n in range(longest)] for item in items])
    logits = plain(input_ids=rows, attention_mask=mask, use_cache=False).logits.float()
    logprobs = logits[:, :-1].log_softmax(-1).gather(-1, rows[:, 1:, None])[..., 0]
    losses = []
    for row, item in zip(logprobs, items, strict=True):
        (start, end), advantage = item.spans[0], item.advantages[0]
        torch.testing.assert_close(
            row[start - 1 : end - 1].detach(), torch.tensor(item.logprobs), rtol=0, atol=1e-4
        )
        losses.append(-advantage * row[start - 1 : end - 1].sum())
    return plain, torch.stack(losses).sum()


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # gpt_bigcode
@pytest.mark.parametrize("kind", [*TREES, *ROWS])
def test_sampler_and_gradients_equal_transformers(kind: str, tmp_path: Path) -> None:
    folder = saved_model(kind, TREES.get(kind, ROWS.get(kind, {})), tmp_path / "model")
    assert architecture_problem(AutoConfig.from_pretrained(folder).to_dict(), kind) is None
    model = loaded(folder)
    assert model.shares_prefixes == (kind in TREES)
    assert model.publish_gap() <= 1e-4
    items = sampled_group(model)
    normaliser = sum(len(item.logprobs) for item in items)
    batch = TrainBatch(items=items, normaliser=normaliser)
    metrics = forward_backward(model, batch, 200, lambda done, total: None)
    assert metrics["logprob_gap/max"] <= 1e-4
    model.save_adapter(tmp_path / "adapter", "base")
    plain, loss = padded_losses(folder, tmp_path / "adapter", items)
    (loss / normaliser).backward()
    expected = {name: p.grad for name, p in plain.named_parameters() if p.requires_grad}
    assert expected.keys() == model.adapter.keys()
    square, error = 0.0, 0.0
    for name, parameter in model.adapter.items():
        if (wanted := expected[name]) is not None:
            assert parameter.grad is not None
            square += wanted.square().sum().item()
            error += (parameter.grad - wanted).square().sum().item()
    relative = (error / square) ** 0.5
    print(f"{kind}: gradient differs by {relative:.1e}, {metrics['logprob_gap/max']:.1e} nats")
    assert relative <= 1e-5


def test_unsupported_types_are_refused_by_their_config() -> None:
    for reason, kinds in UNSUPPORTED.items():
        for kind in kinds:
            assert kind in causal_types(), kind
            problem = architecture_problem({"model_type": kind}, "org/model")
            assert problem is not None
            assert (
                problem.message == f"org/model {reason}, which the torch trainer does not support."
            )
