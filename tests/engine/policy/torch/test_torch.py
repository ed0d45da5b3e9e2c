"""Torch policy against plain references: exact gradients, log-probs and ties."""

from pathlib import Path

import pytest
import torch

from engine.policy.base import (
    AdamStep,
    PolicySpec,
    SampledToken,
    SampleRequest,
    TrainBatch,
    TrainItem,
)
from engine.policy.torch.model.head import UNCHANGED, LogitTransform, SelectedLogProb
from engine.policy.torch.model.model import LoraModel
from engine.policy.torch.sampling.sampler import Sampler
from engine.policy.torch.training.optimizer import Optimizer
from engine.policy.torch.training.prefix_tree import grow
from engine.policy.torch.training.trainer import forward_backward, micro_batches, visible_tokens
from engine.protocol.config.algorithm import Algorithm
from engine.protocol.config.project import ModelConfig


@pytest.fixture
def model(tiny_model: Path) -> LoraModel:
    config = ModelConfig(dtype="float32", rank=4, alpha=8)
    spec = PolicySpec(model_path=str(tiny_model), model=config, seed=0, batch_tokens=256)
    model = LoraModel(spec)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():  # B starts at 0; a non-zero adapter tests more
        for parameter in model.adapter.values():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))
    return model


def sample(model: LoraModel, requests: list[SampleRequest]) -> dict[int, list[SampledToken]]:
    sampled: dict[int, list[SampledToken]] = {number: [] for number in range(len(requests))}
    sampler = Sampler(model, [2], lambda number, token, _: sampled[number].append(token))
    for number, request in enumerate(requests):
        sampler.add(number, request)
    while sampler.busy:
        sampler.step()
    return sampled


def requests(count: int = 12, max_tokens: int = 20) -> list[SampleRequest]:
    prompts = [[3 + (n * p) % 250 for p in range(1, 6 + 7 * (n % 3))] for n in range(count // 2)]
    return [
        SampleRequest(tokens=prompts[n // 2], max_tokens=max_tokens, seed=n) for n in range(count)
    ]


def items(model: LoraModel) -> list[TrainItem]:
    sample_requests = requests()
    return [
        TrainItem(
            tokens=sample_requests[n].tokens + [t.token for t in sampled],
            spans=[(len(sample_requests[n].tokens), len(sample_requests[n].tokens) + len(sampled))],
            logprobs=[t.logprob for t in sampled],
            advantages=[(-1.0) ** n * (1 + n / 10)] * len(sampled),
        )
        for n, sampled in sample(model, sample_requests).items()
    ]


def count(batch: list[TrainItem]) -> int:
    return sum(end - start for item in batch for start, end in item.spans)


def gradients(model: LoraModel) -> dict[str, torch.Tensor]:
    gradients_ = {name: p.grad.clone() for name, p in model.adapter.items() if p.grad is not None}
    model.trained.zero_grad(set_to_none=True)
    return gradients_


def reference(model: LoraModel, batch: list[TrainItem], algorithm: Algorithm) -> torch.Tensor:
    """Loss row by row with whole logits and plain autograd."""
    losses = []
    for item in batch:
        logits = model.trained(input_ids=torch.tensor([item.tokens])).logits[0].float()
        logprobs = logits[:-1].log_softmax(-1)
        targets = torch.tensor(item.tokens[1:])
        chosen = logprobs.gather(-1, targets[:, None]).squeeze(-1)
        mask = torch.zeros(len(targets), dtype=torch.bool)
        for start, end in item.spans:
            mask[start - 1 : end - 1] = True
        new = chosen[mask]
        weight = (new.detach() - torch.tensor(item.logprobs)).exp().clamp(max=2.0)
        ratio = (new - new.detach()).exp()
        losses.append(-(weight * ratio * item.advantages[0]).sum())
    return torch.stack(losses).sum() / count(batch)


def test_gradient_equals_the_reference(model: LoraModel) -> None:
    batch = items(model)
    reference(model, batch, Algorithm()).backward()
    expected = gradients(model)
    train = TrainBatch(items=batch, normaliser=count(batch))
    forward_backward(model, train, 256, lambda done, total: None)
    gradients_ = gradients(model)
    assert gradients_.keys() == expected.keys()
    scale = max(g.abs().max() for g in expected.values())
    for name, gradient in expected.items():
        assert (gradients_[name] - gradient).abs().max() <= 1e-5 * scale


def test_gradient_is_independent_of_micro_batches(model: LoraModel) -> None:
    batch = TrainBatch(items=items(model), normaliser=100)
    forward_backward(model, batch, 10_000, lambda done, total: None)
    unsplit = gradients(model)
    forward_backward(model, batch, 40, lambda done, total: None)
    for name, gradient in gradients(model).items():
        assert torch.allclose(gradient, unsplit[name], atol=1e-6)


def test_sampler_and_trainer_log_probs_agree(model: LoraModel) -> None:
    batch = items(model)
    train = TrainBatch(items=batch, normaliser=count(batch))
    metrics = forward_backward(model, train, 256, lambda done, total: None)
    assert metrics["logprob_gap/max"] <= 1e-4
    assert metrics["ratio/mean"] == pytest.approx(1, abs=1e-4)


def test_seed_determines_tokens_in_any_batch(model: LoraModel) -> None:
    sample_requests = requests()
    batched = sample(model, sample_requests)
    for number in (0, 5, 11):
        single = sample(model, [sample_requests[number]])[0]
        assert [t.token for t in single] == [t.token for t in batched[number]]


def test_sampling_follows_the_distribution(model: LoraModel) -> None:
    sample_requests = [SampleRequest(tokens=[5, 6, 7], max_tokens=1, seed=n) for n in range(4000)]
    sampled = sample(model, sample_requests)
    counts = torch.bincount(torch.tensor([d[0].token for d in sampled.values()]), minlength=259)
    logits = model.trained(input_ids=torch.tensor([[5, 6, 7]])).logits[0, -1]
    expected = logits.softmax(-1) * len(sample_requests)
    tested = expected >= 5
    chi2 = ((counts - expected)[tested] ** 2 / expected[tested]).sum().item()
    freedom = int(tested.sum())
    assert chi2 < freedom + 5 * (2 * freedom) ** 0.5


def test_temperature_zero_is_greedy_and_top_p_truncates(model: LoraModel) -> None:
    logits = model.trained(input_ids=torch.tensor([[5, 6, 7]])).logits[0, -1]
    greedy = SampleRequest(tokens=[5, 6, 7], max_tokens=1, seed=3, temperature=0)
    assert sample(model, [greedy])[0][0].token == int(logits.argmax())
    cut = greedy.model_copy(update={"temperature": 1.0, "top_p": 1e-6})
    sampled = sample(model, [cut])[0][0]
    assert sampled.token == int(logits.argmax())
    assert sampled.logprob == pytest.approx(0, abs=1e-6)


def test_eos_ends_its_row_and_others_continue(model: LoraModel) -> None:
    sampled = sample(model, requests(12, 200))
    for tokens in sampled.values():
        assert all(t.token != 2 for t in tokens[:-1])
        assert tokens[-1].token == 2 or len(tokens) == 200
    assert len({len(tokens) for tokens in sampled.values()}) > 1


@pytest.mark.parametrize(
    "transform", [UNCHANGED, LogitTransform(0.25), LogitTransform(cap=3.0), LogitTransform(2, 1.5)]
)
def test_head_gradient_equals_autograd(transform: LogitTransform) -> None:
    torch.manual_seed(0)
    hidden = torch.randn(700, 8, dtype=torch.float64, requires_grad=True)
    weight, targets = torch.randn(33, 8, dtype=torch.float64), torch.randint(33, (700,))
    bias = torch.randn(33, dtype=torch.float64)
    chosen, entropy = SelectedLogProb.apply(hidden, weight, bias, targets, 0.7, True, transform)
    weights = torch.randn(700)
    (chosen * weights + 0.3 * entropy * weights).sum().backward()
    ours, hidden.grad = hidden.grad, None
    logits = (hidden @ weight.T + bias) * transform.scale
    if transform.cap:
        logits = transform.cap * torch.tanh(logits / transform.cap)
    full = (logits / 0.7).log_softmax(-1)
    plain = full.gather(-1, targets[:, None]).squeeze(-1) - 0.3 * (full.exp() * full).sum(-1)
    (plain * weights).sum().backward()
    assert torch.allclose(ours, hidden.grad, atol=1e-5)
    assert torch.allclose(entropy.double(), -(full.exp() * full).sum(-1), atol=1e-5)


def test_save_and_restore_keep_adapter_and_moments(model: LoraModel, tmp_path: Path) -> None:
    optimizer = Optimizer(model.adapter)
    batch = TrainBatch(items=items(model), normaliser=100)

    def update() -> None:
        forward_backward(model, batch, 256, lambda done, total: None)
        optimizer.step(AdamStep(lr=1e-2))

    update()
    model.save_adapter(tmp_path / "adapter", "base/name")
    optimizer.save(tmp_path / "optimizer.safetensors")
    update()
    uninterrupted = {name: p.detach().clone() for name, p in model.adapter.items()}
    model.load_adapter(tmp_path / "adapter")
    optimizer = Optimizer(model.adapter)
    optimizer.load(tmp_path / "optimizer.safetensors")
    update()
    assert all(torch.equal(uninterrupted[name], p) for name, p in model.adapter.items())


def test_micro_batches_keep_every_item_within_the_budget() -> None:
    batch = [TrainItem(tokens=[n] * n, spans=[(1, n)]) for n in (3, 90, 5, 40, 41, 7, 120)]
    batch += [TrainItem(tokens=[*[9] * 60, n, n], spans=[(60, 62)]) for n in range(20)]
    parts = list(micro_batches(batch, 100))
    all_items = [item for part in parts for item in part]
    assert sorted(map(id, all_items)) == sorted(map(id, batch))
    assert all(len(p) == 1 or grow([visible_tokens(i) for i in p]).tokens <= 100 for p in parts)
    assert len(parts) < 8


def test_recomputed_layers_give_the_same_gradient(model: LoraModel, tiny_model: Path) -> None:
    """Recomputed layers give identical gradients and keep fewer activations."""
    spec = PolicySpec(
        model_path=str(tiny_model), model=ModelConfig(dtype="float32", rank=4, alpha=8), seed=0,
             batch_tokens=256, recompute=True,
    )  # fmt: skip
    recomputing = LoraModel(spec)
    recomputing.trained.load_state_dict(model.trained.state_dict())
    batch = TrainBatch(items=items(model), normaliser=100)
    tested: list[int] = []
    for each in (model, recomputing):
        saved = 0

        def keep(tensor: torch.Tensor) -> torch.Tensor:
            nonlocal saved
            saved += tensor.numel()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            forward_backward(each, batch, 256, lambda done, total: None)
        tested.append(saved)
    for name, parameter in model.adapter.items():
        assert torch.equal(parameter.grad, recomputing.adapter[name].grad), name  # type: ignore[arg-type]
    assert not any(part.training for part in recomputing.trained.modules())
    print(f"numbers kept for the backward pass: {tested[0]:,} and {tested[1]:,}")
