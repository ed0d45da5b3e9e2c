"""Every objective, correction and average against values computed by hand."""

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


def learn(given: Tokens, algorithm: Algorithm) -> tuple[list[float], list[float]]:
    """(losses, gradients) of each token."""
    losses = policy_gradient(given, algorithm)
    losses.sum().backward()
    assert given.logprobs_M.grad is not None
    return losses.tolist(), given.logprobs_M.grad.tolist()


def test_against_the_trainer_the_ratio_is_one_and_the_weight_is_capped() -> None:
    given = tokens([0.0, 0.0, 0.0], [0.0, -5.0, 5.0], [1.0, 1.0, -2.0], [0, 0, 1])
    losses, slopes = learn(given, Algorithm())
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
def test_clipped(gap: float, advantage: float, loss: float, slope: float) -> None:
    given = tokens([gap - 1], [-1.0], [advantage], [0])
    losses, slopes = learn(given, Algorithm(loss=Clipped(), **TO_SAMPLER))
    assert losses == pytest.approx([loss])
    assert slopes == pytest.approx([slope])


@pytest.mark.parametrize(
    ("gap", "weight"), [(0.5, math.exp(0.5)), (3.0, 5.0), (-9.0, math.exp(-9))]
)
def test_cispo_clips_the_value_and_keeps_the_gradient(gap: float, weight: float) -> None:
    given = tokens([gap - 2], [-2.0], [0.5], [0])
    losses, slopes = learn(given, Algorithm(loss=Cispo(), **TO_SAMPLER))
    assert losses == pytest.approx([-weight * 0.5 * (gap - 2)])
    assert slopes == pytest.approx([-weight * 0.5])


def test_gspo_takes_one_ratio_a_sequence() -> None:
    """Sequence 0 has the mean gap 1e-4 (inside), sequence 1 has 1e-2 (outside, A > 0: cut)."""
    given = tokens(
        [-1 + 3e-4, -1 - 1e-4, -1 + 2e-2, -1.0], [-1.0] * 4, [1.0, 1.0, 1.0, 1.0], [0, 0, 1, 1]
    )
    losses, slopes = learn(given, Algorithm(loss=Gspo(), **TO_SAMPLER))
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
def test_corrections(kind: TokenCap, weights: list[float]) -> None:
    gaps = torch.tensor([0.0, math.log(2), math.log(0.5), 0.0])
    sequences = torch.tensor([0, 0, 1, 2])
    if isinstance(kind, SequenceMask) and kind.high > 1.2:
        weights = [1.0, 1.0, 0.0, 1.0]
    assert correction(gaps, sequences, kind).tolist() == pytest.approx(weights)


def test_k3_is_zero_at_home_and_never_negative() -> None:
    new = torch.linspace(-5, -0.01, 50)
    assert k3(new, new).tolist() == [0.0] * 50
    assert (k3(new, new.flip(0)) >= 0).all()
    assert k3(torch.tensor([-1.0]), torch.tensor([-2.0])).item() == pytest.approx(math.exp(-1))


@pytest.mark.parametrize("broken", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("loss", [Clipped(), Cispo(), Gspo()])
def test_what_is_not_finite_weighs_nothing(broken: float, loss: Clipped) -> None:
    given = tokens([-1.0, -1.0], [broken, -1.0], [1.0, 1.0], [0, 1])
    losses, slopes = learn(given, Algorithm(loss=loss))
    assert losses[0] == slopes[0] == 0
    assert slopes[1] == pytest.approx(-1.0)


def test_after_the_first_update_the_ratio_is_against_where_it_began() -> None:
    """r = e^0.5 is cut at 1.28; the sampler's difference of 0.1 only weighs it."""
    given = tokens([-1.0, -1.5], [-1.6, -1.6], [1.0, 1.0], [0, 0])
    given = given._replace(old_logprobs_M=torch.tensor([-1.5, -1.5]))
    losses, slopes = learn(given, Algorithm())
    weight = math.exp(0.1)
    assert losses == pytest.approx([-1.28 * weight, -weight])
    assert slopes == pytest.approx([0.0, -weight])


@pytest.mark.parametrize("broken", [math.inf, -math.inf, math.nan])
def test_an_old_log_prob_that_is_not_finite_weighs_nothing(broken: float) -> None:
    given = tokens([-1.0, -1.0], [-1.0, -1.0], [1.0, 1.0], [0, 0])
    given = given._replace(old_logprobs_M=torch.tensor([broken, -1.0]))
    assert learn(given, Algorithm()) == ([0.0, -1.0], [0.0, -1.0])


@pytest.mark.parametrize(
    ("value", "old", "goal", "loss", "slope"),
    [
        (0.4, 0.0, 1.0, 0.18, -0.6),  # inside the clip: plain squares
        (0.8, 0.0, 1.0, 0.125, 0.0),  # gone further than 0.5 towards the return: no gradient
        (-0.8, 0.0, 1.0, 1.62, -1.8),  # gone away from it: it is called back
        (1.0, 0.9, 1.0, 0.0, 0.0),
    ],
)
def test_value_loss(value: float, old: float, goal: float, loss: float, slope: float) -> None:
    values = torch.tensor([value], requires_grad=True)
    found = value_loss(values, torch.tensor([old]), torch.tensor([goal]), 0.5)
    found.sum().backward()
    assert values.grad is not None
    assert found.tolist() == pytest.approx([loss])
    assert values.grad.tolist() == pytest.approx([slope])


def test_metrics_tell_the_clipped_ratio_from_the_samplers() -> None:
    given = tokens([-1.0, -1.0], [-1.0, math.nan], [1.0, 1.0], [0, 1])._replace(
        logprobs_M=torch.tensor([-1.0, -1.0])
    )
    assert ratio_metrics(given, Algorithm())["clip/high"] == 0
    moved = given._replace(old_logprobs_M=torch.tensor([-1.5, -1.5]))
    found = ratio_metrics(moved, Algorithm())
    assert (found["clip/high"], found["ratio/mean"]) == (1.0, 1.0)
    found = value_metrics(torch.tensor([0.0, 1.0]), torch.tensor([0.0, 2.0]))
    assert found == pytest.approx({"value/mean": 0.5, "value/explained": 0.75})
