"""Training on constrained completions: log-probs, entropies and gradients are those of the masked
distribution that the tokens were sampled from."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.policy.base import SampleRequest, ScoreBatch, TrainBatch, TrainItem
from engine.policy.torch.model.grammar import unpack
from engine.policy.torch.model.head import BLOCK, UNCHANGED, SelectedLogProb
from engine.policy.torch.model.model import LoraModel
from engine.policy.torch.training.trainer import forward_backward, score
from engine.protocol.config.algorithm import Algorithm
from tests.engine.policy.conftest import load
from tests.engine.policy.torch.grammars import (
    PROMPT,
    Results,
    item_of,
    json_schema,
    masked_logprobs,
    regex,
    tag,
)

GRAMMARS = [
    regex("yes|no|maybe"),
    json_schema({"type": "object", "properties": {"a": {"enum": [1, "b", None]}}}),
    regex("[a-z]{2,6}"),
    None,
]


@pytest.fixture
def model(tiny_model: Path) -> LoraModel:
    model = load(tiny_model)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.adapter.values():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))
    return model


def ignore_progress(done: int, total: int) -> None:
    pass


def items(model: LoraModel, temperature: float = 1.0) -> list[TrainItem]:
    """Sixteen completions of one prompt under four grammars; one item has a second, free turn."""
    requests = [
        SampleRequest(
            tokens=PROMPT, max_tokens=12, seed=n, temperature=temperature, grammar=GRAMMARS[n % 4]
        )
        for n in range(16)
    ]
    results = Results(model).run(requests)
    found = [item_of(PROMPT, results.tokens[n], GRAMMARS[n % 4]) for n in range(16)]
    longer = [*found[0].tokens, 9, 10]
    second = Results(model).run(
        [SampleRequest(tokens=longer, max_tokens=3, seed=1, temperature=temperature)]
    )
    added = item_of(longer, second.tokens[0], None)
    found[0] = found[0].model_copy(
        update={
            "tokens": added.tokens,
            "spans": found[0].spans + added.spans,
            "logprobs": found[0].logprobs + added.logprobs,
        }
    )
    return [
        item.model_copy(update={"advantages": [(-1.0) ** n * (1 + n / 10)] * len(item.logprobs)})
        for n, item in enumerate(found)
    ]


def count(batch: list[TrainItem]) -> int:
    return sum(len(item.logprobs) for item in batch)


def gradients(model: LoraModel) -> dict[str, Tensor]:
    found = {name: p.grad.clone() for name, p in model.adapter.items() if p.grad is not None}
    model.trained.zero_grad(set_to_none=True)
    return found


def chosen(logprobs_TV: Tensor, item: TrainItem) -> Tensor:
    tokens = [token for start, end in item.spans for token in item.tokens[start:end]]
    return logprobs_TV.gather(-1, torch.tensor(tokens)[:, None]).squeeze(-1)


def entropies(logprobs_TV: Tensor) -> Tensor:
    return -(logprobs_TV.exp() * logprobs_TV.clamp(min=-1e30)).sum(-1)


@pytest.mark.parametrize("temperature", [1.0, 1.4])
@pytest.mark.parametrize("budget", [1, 1000])
def test_trainer_scores_tokens_as_they_were_sampled(
    model: LoraModel, temperature: float, budget: int
) -> None:
    batch = items(model, temperature)
    scores = score(
        model,
        ScoreBatch(items=batch, temperature=temperature, reference=True),
        budget,
        ignore_progress,
    )
    for item, found in zip(batch, scores, strict=True):
        assert found.logprobs == pytest.approx(item.logprobs, abs=1e-4)
        with model.trained.disable_adapter(), torch.no_grad():
            plain = chosen(masked_logprobs(model, item, temperature), item).tolist()
        assert found.reference == pytest.approx(plain, abs=1e-4)


@pytest.mark.parametrize(
    "algorithm",
    [Algorithm(), Algorithm(entropy=0.01), Algorithm(kl=0.1, kl_in="loss", entropy=0.02)],
)
def test_gradient_equals_autograd_on_masked_logits(model: LoraModel, algorithm: Algorithm) -> None:
    batch = items(model)
    losses = []
    for item in batch:
        logprobs_TV = masked_logprobs(model, item)
        new = chosen(logprobs_TV, item)
        weight = (new.detach() - torch.tensor(item.logprobs)).exp().clamp(max=2.0)
        loss = -weight * (new - new.detach()).exp() * item.advantages[0]
        if algorithm.entropy:
            loss = loss - algorithm.entropy * entropies(logprobs_TV)
        if algorithm.kl:
            with model.trained.disable_adapter(), torch.no_grad():
                reference = chosen(masked_logprobs(model, item), item)
            gap = reference - new
            loss = loss + algorithm.kl * (gap.exp() - gap - 1)
        losses.append(loss.sum())
    (torch.stack(losses).sum() / count(batch)).backward()
    expected = gradients(model)
    train = TrainBatch(items=batch, normaliser=count(batch), algorithm=algorithm)
    metrics = forward_backward(model, train, 1000, ignore_progress)
    found = gradients(model)
    scale = max(gradient.abs().max() for gradient in expected.values())
    for name, gradient in expected.items():
        assert (found[name] - gradient).abs().max() <= 1e-5 * scale
    assert metrics["logprob_gap/max"] <= 1e-4
    with torch.no_grad():
        plain = torch.cat([entropies(masked_logprobs(model, item)) for item in batch]).mean()
    assert metrics["entropy"] == pytest.approx(plain.item(), abs=1e-4)


def test_equal_tokens_under_different_grammars_have_their_own_scores(model: LoraModel) -> None:
    tokens = (
        Results(model)
        .run([SampleRequest(tokens=PROMPT, max_tokens=9, seed=0, grammar=regex("no"))])
        .tokens[0]
    )
    grammars = [regex("no"), regex("no|yes"), regex("[a-z]{2}"), None]
    batch = [item_of(PROMPT, tokens, grammar) for grammar in grammars]
    later = batch[1].model_copy(
        update={"spans": [(len(PROMPT) + 1, len(PROMPT) + 3)], "grammars": [(0, regex("o"))]}
    )
    scores = score(model, ScoreBatch(items=[*batch, later]), 1000, ignore_progress)
    sums = [sum(found.logprobs) for found in scores]
    assert sums[0] == pytest.approx(0, abs=1e-6)
    assert len({round(total, 4) for total in sums[:4]}) == 4
    assert sums[:4] == sorted(sums[:4], reverse=True)
    assert sums[4] == pytest.approx(0, abs=1e-6)


def test_tokens_that_a_grammar_forbids_are_scored_without_mask(model: LoraModel) -> None:
    sampled = Results(model).run([SampleRequest(tokens=PROMPT, max_tokens=6, seed=3)]).tokens[0]
    free, forbidden = (item_of(PROMPT, sampled, grammar) for grammar in (None, regex("no")))
    scores = score(model, ScoreBatch(items=[free, forbidden]), 1000, ignore_progress)
    assert scores[1].logprobs == pytest.approx(scores[0].logprobs, abs=1e-5)


def masks_of(allowed_MV: Tensor) -> Tensor:
    """Words [M, W] of masks."""
    padding = -allowed_MV.shape[1] % 32
    bits = torch.nn.functional.pad(allowed_MV, (0, padding)).view(len(allowed_MV), -1, 32).long()
    words = (bits << torch.arange(32)).sum(-1)
    return (words - (words >= 2**31) * 2**32).int()


@pytest.mark.parametrize("first", [0, BLOCK - 1, BLOCK, 2 * BLOCK + 70])
def test_head_equals_autograd_with_blocks_without_allowed_token(first: int) -> None:
    generator = torch.Generator().manual_seed(0)
    vocabulary = 2 * BLOCK + 77
    allowed_MV = torch.rand((60, vocabulary), generator=generator) < 0.01
    allowed_MV[:, :first] = False
    targets = torch.randint(first, vocabulary, (60,), generator=generator)
    allowed_MV[torch.arange(60), targets] = True
    masks = masks_of(allowed_MV)
    assert torch.equal(unpack(masks, vocabulary), allowed_MV)
    hidden = torch.randn((60, 8), generator=generator, requires_grad=True)
    weight = torch.randn((vocabulary, 8), generator=generator)
    bias = torch.randn(vocabulary, generator=generator)
    weights = torch.randn(60, generator=generator)
    found, entropy = SelectedLogProb.apply(
        hidden, weight, bias, targets, 0.7, True, UNCHANGED, masks
    )
    (found * weights + 0.3 * entropy * weights).sum().backward()
    ours, hidden.grad = hidden.grad, None
    logits = ((hidden @ weight.T + bias) / 0.7).masked_fill(~allowed_MV, -torch.inf)
    full = logits.log_softmax(-1)
    plain_entropy = entropies(full)
    plain = full.gather(-1, targets[:, None]).squeeze(-1)
    (plain * weights + 0.3 * plain_entropy * weights).sum().backward()
    assert torch.allclose(found, plain, atol=1e-5)
    assert torch.allclose(entropy, plain_entropy, atol=1e-5)
    assert torch.allclose(ours, hidden.grad, atol=1e-5)


def test_certain_tokens_have_no_gradient(model: LoraModel) -> None:
    """A grammar with one completion leaves nothing to learn."""
    only = tag({"type": "const_string", "value": "certainly"})
    results = Results(model).run(
        [SampleRequest(tokens=PROMPT, max_tokens=20, seed=0, grammar=only)]
    )
    item = item_of(PROMPT, results.tokens[0], only)
    assert item.logprobs == pytest.approx([0] * 10, abs=1e-6)
    taught: dict[str, Any] = {"advantages": [1.0] * 10}
    train = TrainBatch(items=[item.model_copy(update=taught)], normaliser=10)
    metrics = forward_backward(model, train, 1000, ignore_progress)
    assert metrics["entropy"] == pytest.approx(0, abs=1e-6)
    assert all(gradient.abs().max() < 1e-6 for gradient in gradients(model).values())
    assert math.isfinite(metrics["loss"])
