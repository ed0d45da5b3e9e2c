"""Objectives, importance corrections and value loss against values computed by hand."""

import math

import pytest
import torch

from engine.policy.torch.training.loss import (
    Tokens,
    correction,
    k3,
    policy_gradient,
    ratio_metrics,
    value_loss,
    value_metrics,
)
from engine.protocol.config.algorithm import (
    Algorithm,
    Cispo,
    Clipped,
    Gspo,
    NoCorrection,
    SequenceMask,
    TokenCap,
    TokenMask,
)

TO_SAMPLER = {"ratio_to": "sampler"}


def tokens(
    new: list[float], sampler: list[float], advantages: list[float], sequences: list[int]
) -> Tokens:
    return Tokens(
        torch.tensor(new, requires_grad=True),
        torch.tensor(sampler),
        torch.tensor(advantages),
        torch.tensor(sequences),
    )


def losses_and_gradients(batch: Tokens, algorithm: Algorithm) -> tuple[list[float], list[float]]:
    """(losses, gradients) of each token."""
    losses = policy_gradient(batch, algorithm)
    losses.sum().backward()
    assert batch.logprobs_M.grad is not None
    return losses.tolist(), batch.logprobs_M.grad.tolist()


def test_default_ratio_is_one_and_the_weight_is_capped() -> None:
    batch = tokens([0.0, 0.0, 0.0], [0.0, -5.0, 5.0], [1.0, 1.0, -2.0], [0, 0, 1])
    losses, slopes = losses_and_gradients(batch, Algorithm())
    assert losses == pytest.approx([-1.0, -2.0, 2 * math.exp(-5)])
    assert slopes == pytest.approx([-1.0, -2.0, 2 * math.exp(-5)])


@pytest.mark.parametrize(
    ("gap", "advantage", "loss", "slope"),
    [
        (0.1, 1.0, -math.exp(0.1), -math.exp(0.1)),
        (0.5, 1.0, -1.28, 0.0),
        (0.5, -1.0, math.exp(0.5), math.exp(0.5)),
        (-0.5, 1.0, -math.exp(-0.5), -math.exp(-0.5)),
        (-0.5, -1.0, 0.8, 0.0),
    ],
)
def test_clipped_loss_and_gradient(gap: float, advantage: float, loss: float, slope: float) -> None:
    batch = tokens([gap - 1], [-1.0], [advantage], [0])
    losses, slopes = losses_and_gradients(batch, Algorithm(loss=Clipped(), **TO_SAMPLER))
    assert losses == pytest.approx([loss])
    assert slopes == pytest.approx([slope])


@pytest.mark.parametrize(
    ("gap", "weight"), [(0.5, math.exp(0.5)), (3.0, 5.0), (-9.0, math.exp(-9))]
)
def test_cispo_clips_the_weight_and_keeps_the_gradient(gap: float, weight: float) -> None:
    batch = tokens([gap - 2], [-2.0], [0.5], [0])
    losses, slopes = losses_and_gradients(batch, Algorithm(loss=Cispo(), **TO_SAMPLER))
    assert losses == pytest.approx([-weight * 0.5 * (gap - 2)])
    assert slopes == pytest.approx([-weight * 0.5])


def test_gspo_uses_one_ratio_per_sequence() -> None:
    """Sequence 0 has the mean gap 1e-4 (inside), sequence 1 has 1e-2 (outside, A > 0: clipped)."""
    batch = tokens(
        [-1 + 3e-4, -1 - 1e-4, -1 + 2e-2, -1.0], [-1.0] * 4, [1.0, 1.0, 1.0, 1.0], [0, 0, 1, 1]
    )
    losses, slopes = losses_and_gradients(batch, Algorithm(loss=Gspo(), **TO_SAMPLER))
    inside = math.exp(1e-4)
    assert losses == pytest.approx([-inside, -inside, -1.0004, -1.0004], abs=1e-6)
    assert slopes == pytest.approx([-inside, -inside, 0, 0], abs=1e-6)


@pytest.mark.parametrize(
    ("kind", "weights"),
    [
        (TokenCap(cap=1.5), [1.0, 1.5, 0.5, 1.0]),
        (TokenMask(low=0.6, high=2.5), [1.0, 2.0, 0.0, 1.0]),
        (SequenceMask(low=0.9, high=1.1), [0.0, 0.0, 0.0, 1.0]),
        (SequenceMask(low=0.7, high=1.5), [1.0, 1.0, 1.0, 1.0]),
        (NoCorrection(), [1.0, 1.0, 1.0, 1.0]),
    ],
)
def test_correction_weights(kind: TokenCap, weights: list[float]) -> None:
    gaps = torch.tensor([0.0, math.log(2), math.log(0.5), 0.0])
    sequences = torch.tensor([0, 0, 1, 2])
    if isinstance(kind, SequenceMask) and kind.high > 1.2:
        weights = [1.0, 1.0, 0.0, 1.0]
    assert correction(gaps, sequences, kind).tolist() == pytest.approx(weights)


def test_k3_is_zero_for_equal_inputs_and_never_negative() -> None:
    new = torch.linspace(-5, -0.01, 50)
    assert k3(new, new).tolist() == [0.0] * 50
    assert (k3(new, new.flip(0)) >= 0).all()
    assert k3(torch.tensor([-1.0]), torch.tensor([-2.0])).item() == pytest.approx(math.exp(-1))


@pytest.mark.parametrize("non_finite", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("loss", [Clipped(), Cispo(), Gspo()])
def test_non_finite_sampler_logprob_has_zero_weight(non_finite: float, loss: Clipped) -> None:
    batch = tokens([-1.0, -1.0], [non_finite, -1.0], [1.0, 1.0], [0, 1])
    losses, slopes = losses_and_gradients(batch, Algorithm(loss=loss))
    assert losses[0] == slopes[0] == 0
    assert slopes[1] == pytest.approx(-1.0)


def test_later_updates_use_the_ratio_to_old_logprobs() -> None:
    """r = e^0.5 is clipped to 1.28; the sampler's difference of 0.1 only weights it."""
    batch = tokens([-1.0, -1.5], [-1.6, -1.6], [1.0, 1.0], [0, 0])
    batch = batch._replace(old_logprobs_M=torch.tensor([-1.5, -1.5]))
    losses, slopes = losses_and_gradients(batch, Algorithm())
    weight = math.exp(0.1)
    assert losses == pytest.approx([-1.28 * weight, -weight])
    assert slopes == pytest.approx([0.0, -weight])


@pytest.mark.parametrize("non_finite", [math.inf, -math.inf, math.nan])
def test_non_finite_old_logprob_has_zero_weight(non_finite: float) -> None:
    batch = tokens([-1.0, -1.0], [-1.0, -1.0], [1.0, 1.0], [0, 0])
    batch = batch._replace(old_logprobs_M=torch.tensor([non_finite, -1.0]))
    assert losses_and_gradients(batch, Algorithm()) == ([0.0, -1.0], [0.0, -1.0])


@pytest.mark.parametrize(
    ("value", "old", "target", "loss", "slope"),
    [
        (0.4, 0.0, 1.0, 0.18, -0.6),  # inside the clip: plain squares
        (0.8, 0.0, 1.0, 0.125, 0.0),  # beyond the clip of 0.5 towards the return: no gradient
        (-0.8, 0.0, 1.0, 1.62, -1.8),  # moved away from the return: plain gradient
        (1.0, 0.9, 1.0, 0.0, 0.0),
    ],
)
def test_value_loss_and_gradient(
    value: float, old: float, target: float, loss: float, slope: float
) -> None:
    values = torch.tensor([value], requires_grad=True)
    result = value_loss(values, torch.tensor([old]), torch.tensor([target]), 0.5)
    result.sum().backward()
    assert values.grad is not None
    assert result.tolist() == pytest.approx([loss])
    assert values.grad.tolist() == pytest.approx([slope])


def test_ratio_metrics_separate_clipping_from_sampler_ratio() -> None:
    batch = tokens([-1.0, -1.0], [-1.0, math.nan], [1.0, 1.0], [0, 1])._replace(
        logprobs_M=torch.tensor([-1.0, -1.0])
    )
    assert ratio_metrics(batch, Algorithm())["clip/high"] == 0
    updated = batch._replace(old_logprobs_M=torch.tensor([-1.5, -1.5]))
    result = ratio_metrics(updated, Algorithm())
    assert (result["clip/high"], result["ratio/mean"]) == (1.0, 1.0)
    result = value_metrics(torch.tensor([0.0, 1.0]), torch.tensor([0.0, 2.0]))
    assert result == pytest.approx({"value/mean": 0.5, "value/explained": 0.75})
