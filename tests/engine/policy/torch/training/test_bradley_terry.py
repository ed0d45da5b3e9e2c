"""Bradley–Terry fit: its optimum, its regularization, its held-out accuracy."""

import pytest
import torch
from torch import Tensor

from engine.policy.base import Pair, PreferenceModel
from engine.policy.rows import pack_rows, unpack_rows
from engine.policy.torch.training.bradley_terry import STRENGTHS, fit

WIDTH, GROUPS, SIZE = 30, 24, 6


def random_features(seed: int = 0, groups: int = GROUPS) -> tuple[Tensor, Tensor]:
    """Features of different scales, and a utility that is linear in three of them."""
    generator = torch.Generator().manual_seed(seed)
    standard = torch.randn(groups * SIZE, WIDTH, generator=generator)
    true_utility = 3 * standard[:, 0] - 2 * standard[:, 7] + standard[:, 20]
    return standard * torch.logspace(-3, 3, WIDTH) + 5, true_utility


def pairs_of(true_utility: Tensor) -> list[Pair]:
    return [
        Pair(one, other, group)
        for group in range(len(true_utility) // SIZE)
        for one in range(group * SIZE, (group + 1) * SIZE)
        for other in range(group * SIZE, (group + 1) * SIZE)
        if true_utility[one] > true_utility[other]
    ]


def predicted_utilities(model: PreferenceModel, features_ND: Tensor) -> Tensor:
    mean, scale, weights = (
        torch.tensor(column, dtype=torch.float64)
        for column in (model.mean, model.scale, model.weights)
    )
    return ((features_ND.double() - mean) / scale) @ weights


def accuracy(utility: Tensor, pairs: list[Pair]) -> float:
    return sum(bool(utility[p.better] > utility[p.worse]) for p in pairs) / len(pairs)


def test_fit_orders_unseen_groups() -> None:
    features, true_utility = random_features()
    model = fit(features, pairs_of(true_utility))
    other_features, other_utility = random_features(seed=1)
    share = accuracy(predicted_utilities(model, other_features), pairs_of(other_utility))
    assert share > 0.9
    assert model.accuracy == pytest.approx(share, abs=0.05)
    assert model.count == len(pairs_of(true_utility))
    assert predicted_utilities(model, features).mean().item() == pytest.approx(0, abs=1e-6)
    spread = predicted_utilities(model, features).std(correction=0).item()
    assert model.spread == pytest.approx(spread, rel=1e-6)


def test_random_labels_give_chance_accuracy_and_strongest_penalty() -> None:
    """With random labels, held-out accuracy is one half and the strongest penalty is chosen."""
    features, _ = random_features()
    true_utility = torch.randn(len(features), generator=torch.Generator().manual_seed(5))
    model = fit(features, pairs_of(true_utility))
    assert model.accuracy == pytest.approx(0.5, abs=0.1)
    assert model.strength == max(STRENGTHS)


@pytest.mark.parametrize("groups", [2, GROUPS])
def test_fit_is_the_optimum_of_the_penalised_likelihood(groups: int) -> None:
    """The gradient of the penalised likelihood is 0, with more features than rows or fewer."""
    features, true_utility = random_features(groups=groups)
    pairs = [pair._replace(weight=1.0 + pair.better % 3) for pair in pairs_of(true_utility)]
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


def test_fit_is_deterministic() -> None:
    features, true_utility = random_features()
    assert fit(features, pairs_of(true_utility)) == fit(features, pairs_of(true_utility))


def test_constant_feature_gets_zero_weight() -> None:
    features, true_utility = random_features()
    features[:, 3] = 4.0
    model = fit(features, pairs_of(true_utility))
    assert model.weights[3] == pytest.approx(0, abs=1e-9)
    assert model.accuracy is not None
    assert model.accuracy > 0.9
    flat = fit(torch.ones(2, 4), [Pair(0, 1, 0), Pair(0, 1, 1)])
    assert flat.weights == [0.0] * 4
    assert flat.accuracy == 0.5  # ties count as half


def test_single_group_has_no_accuracy() -> None:
    features, true_utility = random_features(groups=1)
    model = fit(features, pairs_of(true_utility))
    assert model.accuracy is None
    assert model.count == 0


def test_pair_weights_decide_the_sign() -> None:
    """The utility of the only feature follows the pair with the larger weight."""
    features = torch.tensor([[1.0], [0.0], [0.0], [1.0]])
    model = fit(features, [Pair(0, 1, 0, 3.0), Pair(2, 3, 1, 1.0)])
    assert model.weights[0] > 0
    model = fit(features, [Pair(0, 1, 0, 1.0), Pair(2, 3, 1, 3.0)])
    assert model.weights[0] < 0


def test_packed_rows_are_float32() -> None:
    rows = [[1.5, -2e30, 1e-30], [0.1, 0.2, 0.3]]
    unpacked = unpack_rows(pack_rows(rows), 2)
    assert unpacked == torch.tensor(rows).tolist()
    assert unpack_rows(pack_rows([]), 0) == []
