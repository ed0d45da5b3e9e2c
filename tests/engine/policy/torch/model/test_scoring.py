"""Capped logits and attention sinks against a plain softmax over all keys."""

import pytest
import torch
from torch import Tensor

from engine.policy.torch.model import scoring
from engine.policy.torch.model.attention import band
from engine.policy.torch.model.scoring import Scoring, weigh


def plain(query: Tensor, key: Tensor, value: Tensor, seen: Tensor, how: Scoring) -> Tensor:
    groups = query.shape[1] // key.shape[1]
    logits = query @ key.repeat_interleave(groups, 1).transpose(2, 3) * how.scale
    if how.cap:
        logits = how.cap * torch.tanh(logits / how.cap)
    weights = logits.exp() * seen
    total = weights.sum(-1, keepdim=True)
    if how.sinks_Q is not None:
        total = total + how.sinks_Q.exp()[:, None, None]
    return weights / total @ value.repeat_interleave(groups, 1)


@pytest.mark.parametrize("block_weights", [1, 300, 1 << 24])
@pytest.mark.parametrize("window", [None, 4])
@pytest.mark.parametrize("cap", [None, 0.7])
@pytest.mark.parametrize("sinks", [False, True])
def test_output_and_gradients_equal_plain_softmax(
    monkeypatch: pytest.MonkeyPatch, block_weights: int, window: int | None, cap: float | None,
    sinks: bool,
) -> None:  # fmt: skip
    monkeypatch.setattr(scoring, "BLOCK_WEIGHTS", block_weights)
    torch.manual_seed(0)
    shapes = [(2, 6, 7, 8), (2, 2, 12, 8), (2, 2, 12, 8)]
    given = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    logits = torch.randn(6, dtype=torch.float64) if sinks else None
    how = Scoring(0.5, window, cap, logits)
    seen = band(7, 5, window, torch.device("cpu"))
    slope = torch.randn(2, 6, 7, 8, dtype=torch.float64)
    found, expected = (compute(*given, seen, how) for compute in (weigh, plain))
    torch.testing.assert_close(found, expected)
    for ours, wanted in zip(
        torch.autograd.grad(found, given, slope),
        torch.autograd.grad(expected, given, slope),
        strict=True,
    ):
        torch.testing.assert_close(ours, wanted)


def test_each_row_may_see_other_keys() -> None:
    torch.manual_seed(0)
    query, key, value = torch.randn(2, 4, 1, 8), torch.randn(2, 2, 5, 8), torch.randn(2, 2, 5, 8)
    seen = torch.tensor([[[1, 1, 0, 0, 0]], [[1, 1, 1, 1, 0]]], dtype=torch.bool)
    how = Scoring(0.3, sinks_Q=torch.zeros(4))
    found = weigh(query, key, value, seen, how)
    for row in range(2):
        alone = plain(
            query[row : row + 1], key[row : row + 1], value[row : row + 1], seen[row], how
        )
        torch.testing.assert_close(found[row], alone[0])
