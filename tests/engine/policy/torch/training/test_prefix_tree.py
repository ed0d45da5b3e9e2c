"""Prefix trees: log-probs and gradients equal one plain row per sequence."""

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, PreTrainedModel

from engine.policy.base import ScoreBatch, TrainBatch, TrainItem
from engine.policy.torch.model.model import LoraModel
from engine.policy.torch.training.prefix_tree import grow
from engine.policy.torch.training.trainer import forward_backward, score, visible_tokens
from tests.engine.policy.conftest import load

TOKENS = st.lists(st.integers(0, 2), max_size=9)


@given(st.lists(TOKENS, max_size=12))
def test_every_sequence_is_a_path_of_the_tree(sequences: list[list[int]]) -> None:
    forest = grow(sequences)
    row = [token for segment in forest.segments for token in segment.tokens]
    assert [[row[position] for position in positions] for positions in forest.places] == sequences
    prefixes = {tuple(s[:length]) for s in sequences for length in range(1, len(s) + 1)}
    assert len(row) == len(prefixes)
    for segment in forest.segments:
        assert segment.tokens
        assert segment.start == (segment.parent.end if segment.parent else 0)
        assert segment.parent is None or segment.parent.number < segment.number


@st.composite
def batches(draw: st.DrawFn) -> list[TrainItem]:
    """Items of groups, turns and branches: long shared prefixes, masks with holes, any length."""
    roots = draw(st.lists(st.lists(st.integers(3, 96), min_size=2, max_size=20), max_size=2))
    items: list[TrainItem] = []
    for _ in range(draw(st.integers(1, 7))):
        stem: list[int] = list(draw(st.sampled_from([*roots, [5]])))
        if items and draw(st.booleans()):
            other = draw(st.sampled_from(items)).tokens
            stem = other[: draw(st.integers(1, len(other)))]
        tokens = stem + draw(st.lists(st.integers(3, 96), min_size=1, max_size=24))
        cuts = sorted(draw(st.sets(st.integers(1, len(tokens)), min_size=2, max_size=4)) | {1})
        cuts = cuts if len(cuts) % 2 == 0 else cuts[1:]
        spans = list(zip(cuts[::2], cuts[1::2], strict=True))
        if not spans:
            continue
        count = sum(end - start for start, end in spans)
        logprobs = [draw(st.floats(-6, -0.1)) for _ in range(count)]
        advantage = draw(st.floats(-2, 2).filter(lambda a: abs(a) > 0.01))
        items.append(
            TrainItem(tokens=tokens, spans=spans, logprobs=logprobs, advantages=[advantage] * count)
        )
    return items


@pytest.fixture(scope="module")
def model(tiny_model: Path) -> LoraModel:
    return load_perturbed(tiny_model)


@pytest.fixture(scope="module")
def eager(tiny_model: Path) -> PreTrainedModel:
    return AutoModelForCausalLM.from_pretrained(tiny_model, attn_implementation="eager").eval()


def load_perturbed(folder: Path) -> LoraModel:
    """Load with a non-zero adapter."""
    model = load(folder)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.adapter.values():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))
    return model


def count(items: list[TrainItem]) -> int:
    return sum(end - start for item in items for start, end in item.spans)


def gradient(model: LoraModel) -> torch.Tensor:
    flat_gradient = torch.cat(
        [p.grad.flatten() for p in model.adapter.values() if p.grad is not None]
    )
    model.trained.zero_grad(set_to_none=True)
    return flat_gradient


def packed_gradient(model: LoraModel, items: list[TrainItem], budget: int = 10_000) -> torch.Tensor:
    batch = TrainBatch(items=items, normaliser=count(items))
    forward_backward(model, batch, budget, lambda done, total: None)
    return gradient(model)


def plain_gradient(model: LoraModel, items: list[TrainItem]) -> torch.Tensor:
    """Gradient row by row with whole logits and autograd; attention is the model's own."""
    losses = []
    for item in items:
        logits = model.trained(input_ids=torch.tensor([item.tokens])).logits[0].float()
        chosen = (
            logits[:-1].log_softmax(-1).gather(-1, torch.tensor(item.tokens[1:])[:, None])[:, 0]
        )
        new = torch.cat([chosen[start - 1 : end - 1] for start, end in item.spans])
        weight = (new.detach() - torch.tensor(item.logprobs)).clamp(-20, 20).exp().clamp(max=2.0)
        losses.append(-(weight * (new - new.detach()).exp() * item.advantages[0]).sum())
    (torch.stack(losses).sum() / count(items)).backward()
    return gradient(model)


@settings(max_examples=60, deadline=None)
@given(items=batches(), budget=st.sampled_from([1, 30, 10_000]))
def test_gradients_equal_plain_rows(model: LoraModel, items: list[TrainItem], budget: int) -> None:
    if not items:
        return
    expected = plain_gradient(model, items)
    assert (
        packed_gradient(model, items, budget) - expected
    ).norm() <= 1e-5 * expected.norm() + 1e-9
    assert (
        packed_gradient(model, items[::-1], budget) - expected
    ).norm() <= 1e-5 * expected.norm() + 1e-9


@settings(max_examples=60, deadline=None)
@given(items=batches(), budget=st.sampled_from([1, 30, 10_000]))
def test_logprobs_equal_padded_rows(
    eager: PreTrainedModel, model: LoraModel, items: list[TrainItem], budget: int
) -> None:
    """Reference: one padded batch without the adapter, eager attention with a mask."""
    if not items:
        return
    longest = max(len(item.tokens) for item in items)
    rows_BT = torch.tensor([item.tokens + [0] * (longest - len(item.tokens)) for item in items])
    mask_BT = torch.tensor(
        [[1] * len(item.tokens) + [0] * (longest - len(item.tokens)) for item in items]
    )
    with torch.no_grad():
        logprobs_BTV = eager(input_ids=rows_BT, attention_mask=mask_BT).logits.log_softmax(-1)
    score_batch = ScoreBatch(items=items, reference=True)
    for number, item_scores in enumerate(
        score(model, score_batch, budget, lambda done, total: None)
    ):
        item = items[number]
        positions = [position for start, end in item.spans for position in range(start, end)]
        expected = [logprobs_BTV[number, p - 1, item.tokens[p]].item() for p in positions]
        assert item_scores.reference == pytest.approx(expected, abs=2e-6)


def sample_items() -> list[TrainItem]:
    """Two groups: rows of several lengths, a second turn, two identical rows."""
    torch.manual_seed(3)
    stems = [torch.randint(3, 96, (25,)).tolist(), torch.randint(3, 96, (40,)).tolist()]
    items = []
    for number in range(10):
        tokens = stems[number % 2] + torch.randint(3, 96, (4 + 3 * (number // 2),)).tolist()
        items.append(item(tokens, [(len(stems[number % 2]), len(tokens))], number))
    longer = items[2].tokens + torch.randint(3, 96, (20,)).tolist()
    items.append(item(longer, [(26, 30), (len(longer) - 6, len(longer))], 11))
    items.append(items[3].model_copy(update={"advantages": [-0.4] * len(items[3].advantages)}))
    return items


def item(tokens: list[int], spans: list[tuple[int, int]], number: int) -> TrainItem:
    trained = sum(end - start for start, end in spans)
    return TrainItem(
        tokens=tokens,
        spans=spans,
        logprobs=[-2.0] * trained,
        advantages=[(-1) ** number * 0.7] * trained,
    )


def test_every_model_family_matches_plain_rows(folder: Path) -> None:
    """Log-probs against the family's eager attention; gradients against plain rows."""
    model, items = load_perturbed(folder), sample_items()
    expected = plain_gradient(model, items)
    assert (packed_gradient(model, items, 200) - expected).norm() <= 1e-5 * expected.norm()
    assert grow([visible_tokens(item) for item in items]).tokens < 0.6 * sum(
        len(i.tokens) for i in items
    )
    eager = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()
    with torch.no_grad():
        for parameter in model.adapter.values():
            parameter.zero_()
        for one in items:
            logits = model.trained(input_ids=torch.tensor([one.tokens])).logits
            reference = eager(input_ids=torch.tensor([one.tokens])).logits
            assert (logits.log_softmax(-1) - reference.log_softmax(-1)).abs().max() <= 1e-4
