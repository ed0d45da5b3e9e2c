"""Bradley–Terry on features: P(i beats j) = σ(w · (x_i − x_j)), by regularised maximum likelihood.

The objective is Σ weight · softplus(−w · (x_i − x_j)) / Σ weight + strength / 2 · ‖w‖² over the
pairs (Bradley and Terry 1952; Hunter 2004 for the likelihood), minimised by L-BFGS in float64.
Features are standardised and divided by √D, so that ‖x‖ is about 1 and a strength means the same
for any model. The strength is chosen by cross-validation over whole groups. No random numbers are
used.

N rollouts, D features, P pairs.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import softplus

from engine.policy.base import Pair, PreferenceModel

STRENGTHS = tuple(10.0**power for power in range(0, -6, -1))
"""Strengths from strong to weak: each fit starts from the one before."""
FOLDS = 5
MOST_ITERATIONS = 200
LEAST_SCALE = 1e-3
"""Lower bound of a feature's scale, as a share of the median deviation."""


class Pairs(NamedTuple):
    """P pairs as columns."""

    better_P: Tensor
    worse_P: Tensor
    weight_P: Tensor
    fold_P: Tensor

    def where(self, chosen_P: Tensor) -> "Pairs":
        return Pairs(*(column_P[chosen_P] for column_P in self))

    def gaps(self, utility_N: Tensor) -> Tensor:
        """Utility of the better row minus that of the worse one, for each pair [P]."""
        return utility_N[self.better_P] - utility_N[self.worse_P]

    def loss(self, utility_N: Tensor) -> Tensor:
        """Negative log-likelihood of all pairs in nats, weighted by `weight_P` and summed."""
        return (self.weight_P * softplus(-self.gaps(utility_N))).sum()


def fit(features_ND: Tensor, pairs: list[Pair]) -> PreferenceModel:
    """Fit a preference model to one or more pairs of rows of `features_ND`; held-out `accuracy`
    needs at least two groups."""
    raw_ND = features_ND.double()
    mean_D, scale_D = raw_ND.mean(0), _scale(raw_ND)
    basis_DK, x_NK = _row_space((raw_ND - mean_D) / scale_D)
    columns = _columns(pairs)
    strength, accuracy, count = _validated(x_NK, columns)
    w_K = _path(x_NK, columns, strength)[strength]
    return PreferenceModel(
        mean=mean_D.tolist(),
        scale=scale_D.tolist(),
        weights=(basis_DK @ w_K).tolist(),
        strength=strength,
        spread=(x_NK @ w_K).std(correction=0).item(),
        accuracy=accuracy,
        count=count,
    )


def _scale(raw_ND: Tensor) -> Tensor:
    deviation_D = raw_ND.std(0, correction=0)
    floored_D = deviation_D.clamp(min=LEAST_SCALE * deviation_D.median().item())
    return torch.where(floored_D > 0, floored_D, 1.0) * raw_ND.shape[1] ** 0.5


def _row_space(x_ND: Tensor) -> tuple[Tensor, Tensor]:
    """Orthonormal basis [D, K] of the rows and x in its coordinates [N, K]: the penalised optimum
    lies in the span of the N rows, so K = N unknowns suffice if D is larger."""
    count, width = x_ND.shape
    if width <= count:
        return torch.eye(width, dtype=x_ND.dtype), x_ND
    basis_DK, upper_KN = torch.linalg.qr(x_ND.T)
    return basis_DK, upper_KN.T.contiguous()


def _columns(pairs: list[Pair]) -> Pairs:
    numbers = {group: number for number, group in enumerate(dict.fromkeys(p.group for p in pairs))}
    return Pairs(
        torch.tensor([pair.better for pair in pairs]),
        torch.tensor([pair.worse for pair in pairs]),
        torch.tensor([pair.weight for pair in pairs], dtype=torch.float64),
        torch.tensor([numbers[pair.group] % FOLDS for pair in pairs]),
    )


def _validated(x_NK: Tensor, pairs: Pairs) -> tuple[float, float | None, int]:
    """Best strength on held-out groups, its share of correctly ordered pairs, and their number. The
    share is slightly optimistic, since the strength was chosen on the same pairs."""
    folds = pairs.fold_P.unique().tolist()
    if len(folds) < 2:
        return STRENGTHS[0], None, 0
    losses, right = dict.fromkeys(STRENGTHS, 0.0), dict.fromkeys(STRENGTHS, 0.0)
    for fold in folds:
        held = pairs.where(pairs.fold_P == fold)
        path = _path(x_NK, pairs.where(pairs.fold_P != fold), STRENGTHS[-1])
        for strength, w_K in path.items():
            utility_N = x_NK @ w_K
            losses[strength] += held.loss(utility_N).item()
            right[strength] += ((held.gaps(utility_N).sign() + 1) / 2).sum().item()
    best = min(STRENGTHS, key=losses.__getitem__)
    count = len(pairs.weight_P)
    return best, right[best] / count, count


def _path(x_NK: Tensor, pairs: Pairs, weakest: float) -> dict[float, Tensor]:
    """Weights [K] by strength, down to the weakest."""
    found: dict[float, Tensor] = {}
    w_K = x_NK.new_zeros(x_NK.shape[1])
    for strength in STRENGTHS[: STRENGTHS.index(weakest) + 1]:
        found[strength] = w_K = _fitted(x_NK, pairs, strength, w_K)
    return found


def _fitted(x_NK: Tensor, pairs: Pairs, strength: float, start_K: Tensor) -> Tensor:
    w_K = start_K.clone().requires_grad_()
    total = pairs.weight_P.sum()
    optimizer = torch.optim.LBFGS(
        [w_K],
        max_iter=MOST_ITERATIONS,
        tolerance_grad=1e-8,
        tolerance_change=1e-12,
        line_search_fn="strong_wolfe",
    )

    def objective() -> Tensor:
        optimizer.zero_grad()
        loss = pairs.loss(x_NK @ w_K) / total + strength / 2 * (w_K @ w_K)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimizer.step(objective)
    return w_K.detach()
