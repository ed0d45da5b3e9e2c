"""The Bradley–Terry fit: its optimum, its strength, its honesty about held-out groups."""

import pytest
import torch
from torch import Tensor

from engine.policy.base import Pair, PreferenceModel
from engine.policy.rows import pack_rows, unpack_rows
from engine.policy.torch.training.bradley_terry import STRENGTHS, fit

WIDTH, GROUPS, SIZE = 30, 24, 6


def attempts(seed: int = 0, groups: int = GROUPS) -> tuple[Tensor, Tensor]:
    """Features with unlike scales, and a utility that is linear in three of them."""
    generator = torch.Generator().manual_seed(seed)
    standard = torch.randn(groups * SIZE, WIDTH, generator=generator)
    truth = 3 * standard[:, 0] - 2 * standard[:, 7] + standard[:, 20]
    return standard * torch.logspace(-3, 3, WIDTH) + 5, truth


def pairs_of(truth: Tensor) -> list[Pair]:
    return [
        Pair(one, other, group)
        for group in range(len(truth) // SIZE)
        for one in range(group * SIZE, (group + 1) * SIZE)
        for other in range(group * SIZE, (group + 1) * SIZE)
        if truth[one] > truth[other]
    ]


def utilities(model: PreferenceModel, features_ND: Tensor) -> Tensor:
    mean, scale, weights = (
        torch.tensor(column, dtype=torch.float64)
        for column in (model.mean, model.scale, model.weights)
    )
    return ((features_ND.double() - mean) / scale) @ weights


def share_right(utility: Tensor, pairs: list[Pair]) -> float:
    return sum(bool(utility[p.better] > utility[p.worse]) for p in pairs) / len(pairs)


def test_it_orders_groups_that_it_has_not_seen() -> None:
    features, truth = attempts()
    model = fit(features, pairs_of(truth))
    others, their_truth = attempts(seed=1)
    share = share_right(utilities(model, others), pairs_of(their_truth))
    assert share > 0.9
    assert model.accuracy == pytest.approx(share, abs=0.05)
    assert model.count == len(pairs_of(truth))
    assert utilities(model, features).mean().item() == pytest.approx(0, abs=1e-6)
    spread = utilities(model, features).std(correction=0).item()
    assert model.spread == pytest.approx(spread, rel=1e-6)


def test_noise_is_found_out() -> None:
    """Labels that say nothing: held-out pairs are a coin toss, and the strength is the largest."""
    features, _ = attempts()
    truth = torch.randn(len(features), generator=torch.Generator().manual_seed(5))
    model = fit(features, pairs_of(truth))
    assert model.accuracy == pytest.approx(0.5, abs=0.1)
    assert model.strength == max(STRENGTHS)


@pytest.mark.parametrize("groups", [2, GROUPS])
def test_it_is_the_optimum(groups: int) -> None:
    """The gradient of the penalised likelihood is 0, with more features than attempts or fewer."""
    features, truth = attempts(groups=groups)
    pairs = [pair._replace(weight=1.0 + pair.better % 3) for pair in pairs_of(truth)]
    model = fit(features, pairs)
    weights = torch.tensor(model.weights, dtype=torch.float64, requires_grad=True)
    mean, scale = (
        torch.tensor(column, dtype=torch.float64) for column in (model.mean, model.scale)
    )
    utility = ((features.double() - mean) / scale) @ weights
    losses = torch.stack(
        [
            p.weight * torch.nn.functional.softplus(utility[p.worse] - utility[p.better])
            for p in pairs
        ]
    )
    total = sum(pair.weight for pair in pairs)
    (losses.sum() / total + model.strength / 2 * weights @ weights).backward()
    assert weights.grad is not None
    assert weights.grad.norm() < 1e-6


def test_the_same_pairs_give_the_same_model() -> None:
    features, truth = attempts()
    assert fit(features, pairs_of(truth)) == fit(features, pairs_of(truth))


def test_a_feature_that_never_changes_is_no_harm() -> None:
    features, truth = attempts()
    features[:, 3] = 4.0
    model = fit(features, pairs_of(truth))
    assert model.weights[3] == pytest.approx(0, abs=1e-9)
    assert model.accuracy is not None
    assert model.accuracy > 0.9
    flat = fit(torch.ones(2, 4), [Pair(0, 1, 0), Pair(0, 1, 1)])
    assert flat.weights == [0.0] * 4
    assert flat.accuracy == 0.5  # who does not know is half right


def test_one_group_says_nothing_of_others() -> None:
    features, truth = attempts(groups=1)
    model = fit(features, pairs_of(truth))
    assert model.accuracy is None
    assert model.count == 0


def test_weights_count() -> None:
    """Three against one: the utility of the only feature follows the heavier pair."""
    features = torch.tensor([[1.0], [0.0], [0.0], [1.0]])
    model = fit(features, [Pair(0, 1, 0, 3.0), Pair(2, 3, 1, 1.0)])
    assert model.weights[0] > 0
    model = fit(features, [Pair(0, 1, 0, 1.0), Pair(2, 3, 1, 3.0)])
    assert model.weights[0] < 0


def test_rows_come_over_the_line_as_float32() -> None:
    rows = [[1.5, -2e30, 1e-30], [0.1, 0.2, 0.3]]
    got = unpack_rows(pack_rows(rows), 2)
    assert got == torch.tensor(rows).tolist()
    assert unpack_rows(pack_rows([]), 0) == []
