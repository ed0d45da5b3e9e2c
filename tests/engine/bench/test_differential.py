"""Losses and advantages against TRL's and ART's own functions on random tensors."""

import json
import math
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.bench.rival import environment
from engine.policy.torch.training.loss import Tokens, k3, policy_gradient
from engine.protocol.config.algorithm import (
    Algorithm,
    Cispo,
    Clipped,
    GroupMean,
    GroupStd,
    Gspo,
    LeaveOneOut,
    NoCorrection,
)
from engine.reward.advantage.group import advantages

TOLERANCE = 1e-6
REFERENCE = Path(__file__).with_name("reference.py")
LONGEST = 16


@pytest.fixture(scope="module")
def reference():
    python = environment()

    def ask(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
        done = subprocess.run(
            [str(python), str(REFERENCE)],
            input=json.dumps(cases),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        answers: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
        return answers

    return ask


def rows(seed: int, count: int = 6) -> dict[str, Any]:
    """Random sequences of several lengths, with holes in masks, ties and an empty sequence."""
    rng = random.Random(seed)

    def numbers(low: float, high: float) -> list[list[float]]:
        return [[rng.uniform(low, high) for _ in range(LONGEST)] for _ in range(count)]

    logprobs = numbers(-4, 0)
    masks = [[int(rng.random() < 0.8) for _ in range(LONGEST)] for _ in range(count)]
    masks[0] = [1] + [0] * (LONGEST - 1)
    advantages = [rng.uniform(-1, 1) for _ in range(count)]
    advantages[1:4] = [0.5, 0.5, 0.0][: max(count - 1, 0)]
    return {
        "logprobs": logprobs,
        "old": [[x + rng.gauss(0, 0.3) for x in row] for row in logprobs],
        "reference": [[x + rng.gauss(0, 0.5) for x in row] for row in logprobs],
        "mask": masks,
        "advantages": advantages,
    }


def our_loss(tensors: dict[str, Any], algorithm: Algorithm, normaliser: float) -> dict[str, Any]:
    """Loss and gradient by our functions, called as the trainer calls them."""
    mask = torch.tensor(tensors["mask"]).bool()
    logprobs = torch.tensor(tensors["logprobs"], dtype=torch.double, requires_grad=True)
    sequences = torch.arange(len(mask))[:, None].expand(mask.shape)[mask]
    advantages = torch.tensor(tensors["advantages"], dtype=torch.double)
    if advantages.dim() == 1:
        advantages = advantages[:, None].expand(mask.shape)
    tokens = Tokens(
        logprobs[mask],
        torch.tensor(tensors["old"], dtype=torch.double)[mask],
        advantages[mask],
        sequences,
    )
    losses = policy_gradient(tokens, algorithm)
    if algorithm.kl:
        reference_logprobs = torch.tensor(tensors["reference"], dtype=torch.double)[mask]
        losses = losses + algorithm.kl * k3(tokens.logprobs_M, reference_logprobs)
    counts = mask.sum(1)[sequences] if algorithm.average == "sequences" else 1
    weights = (
        torch.tensor(tensors["weights"], dtype=torch.double)[mask] if "weights" in tensors else 1
    )
    loss = (losses / counts * weights).sum() / normaliser
    loss.backward()
    assert logprobs.grad is not None
    return {"loss": loss.item(), "gradient": logprobs.grad.tolist()}


def max_difference(one: dict[str, Any], other: dict[str, Any]) -> float:
    gradients = torch.tensor(one["gradient"]) - torch.tensor(other["gradient"])
    return max(abs(one["loss"] - other["loss"]), gradients.abs().max().item())


def against_sampler(**settings: Any) -> Algorithm:
    return Algorithm(ratio_to="sampler", correction=NoCorrection(), **settings)


TRL = {
    "dapo": ({"loss_type": "dapo"}, against_sampler()),
    "grpo": (
        {"loss_type": "grpo", "epsilon_high": 0.2},
        against_sampler(average="sequences", loss=Clipped(low=0.2, high=0.2)),
    ),
    "dr_grpo": (
        {"loss_type": "dr_grpo", "max_completion_length": LONGEST},
        against_sampler(average="constant"),
    ),
    "cispo": (
        {"loss_type": "cispo", "epsilon_high": 5.0},
        against_sampler(loss=Cispo(low=1.0, high=4.0)),
    ),
    "gspo": (
        {
            "loss_type": "grpo",
            "importance_sampling_level": "sequence",
            "epsilon_low": 0.05,
            "epsilon_high": 0.07,
        },
        against_sampler(average="sequences", loss=Gspo(low=0.05, high=0.07)),
    ),
    "kl": ({"loss_type": "dapo", "beta": 0.04}, against_sampler(kl=0.04)),
}


def normaliser(masks: list[list[int]], average: str) -> float:
    if average == "tokens":
        return sum(map(sum, masks))
    return len(masks) * (LONGEST if average == "constant" else 1)


@pytest.mark.long
def test_losses_and_gradients_equal_trl(reference):
    cases, expected = [], []
    for name, (settings, algorithm) in TRL.items():
        for seed in range(8):
            tensors = rows(seed)
            cases.append({"library": "trl", "settings": settings, "tensors": tensors})
            divisor = normaliser(tensors["mask"], algorithm.average)
            expected.append((f"{name} {seed}", our_loss(tensors, algorithm, divisor)))
    for (name, result), expected_ in zip(expected, reference(cases), strict=True):
        assert max_difference(result, expected_) <= TOLERANCE, name


@pytest.mark.long
def test_art_loss_equals_art(reference):
    cases, expected = [], []
    for seed in range(8):
        rng = random.Random(seed)
        packed = rows(seed, count=1)
        del packed["reference"]
        packed["old"] = [[x + rng.gauss(0, 1.5) for x in packed["logprobs"][0]]]
        packed["advantages"] = [[rng.uniform(-2, 2) for _ in range(LONGEST)]]
        packed["weights"] = [[rng.uniform(0, 2) for _ in range(LONGEST)]]
        packed["mask"] = [[1, 1, *(int(rng.random() < 0.8) for _ in range(LONGEST - 2))]]
        packed["sequences"] = [[0] * LONGEST]
        cases.append({"library": "art", "settings": {}, "tensors": packed})
        # ART adds 1e-6 to the number of tokens
        expected.append(our_loss(packed, Algorithm(preset="art"), sum(packed["mask"][0]) + 1e-6))
    for result, expected_ in zip(expected, reference(cases), strict=True):
        assert max_difference(result, expected_) <= TOLERANCE


@pytest.mark.parametrize("non_finite", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("tensor_name", ["logprobs", "old"])
def test_non_finite_logprobs_have_no_weight(non_finite, tensor_name):
    tensors = rows(0)
    index = tensors["mask"][4].index(1)
    tensors[tensor_name][4][index] = non_finite
    masked = {**tensors, "mask": [list(row) for row in tensors["mask"]]}
    masked["mask"][4][index] = 0
    for _, algorithm in TRL.values():
        if algorithm.kl or isinstance(algorithm.loss, Gspo) or algorithm.average == "sequences":
            continue
        assert (
            max_difference(our_loss(tensors, algorithm, 50), our_loss(masked, algorithm, 50)) == 0
        )


GROUPS = [
    [0.0, 1.0, 1.0, 0.5],
    [0.3, None, -2.0, 0.31],
    [None, 0.7, None, None],
    [None] * 4,
    [0.25] * 4,
    [0.0, 0.0, 0.0, 1e-3],
    [3.0, -1.0, None, 3.0],
]
"""Groups with differences, ties, unscored rewards, one reward, and none."""


def spread(rewards: list[float | None], ddof: int) -> float:
    scored = [reward for reward in rewards if reward is not None]
    mean = sum(scored) / len(scored)
    return math.sqrt(sum((r - mean) ** 2 for r in scored) / max(len(scored) - ddof, 1))


@pytest.mark.long
def test_advantages_equal_trl(reference):
    """TRL divides by the sample standard deviation + 1e-4, we by the population's."""
    trainers = [("grpo", "none"), ("grpo", "group"), ("rloo", "none")]
    all_rewards = [reward for group in GROUPS for reward in group]
    cases = [
        {"trainer": t, "scale_rewards": s, "rewards": all_rewards, "size": 4} for t, s in trainers
    ]
    plain, scaled, leave_one_out = reference(cases)
    kind = GroupStd(floor=0.0)
    for number, group in enumerate(GROUPS):
        index = slice(4 * number, 4 * number + 4)
        pairs = {
            "plain": (advantages(GroupMean(), group), plain[index]),
            "scaled": (advantages(kind, group), scaled[index]),
            "left out": (advantages(LeaveOneOut(), group), leave_one_out[index]),
        }
        for name, (result, expected_) in pairs.items():
            factor = 1.0
            if name == "scaled" and any(own_i for own_i in result):
                factor = (spread(group, 0) + kind.epsilon) / (spread(group, 1) + 1e-4)
            assert [(a or 0.0) * factor for a in result] == pytest.approx(
                expected_, abs=TOLERANCE
            ), name


@pytest.mark.parametrize("non_finite", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("tensor_name", ["logprobs", "old"])
@pytest.mark.parametrize("name", ["grpo", "gspo"])
def test_non_finite_logprob_affects_only_its_sequence(non_finite, tensor_name, name):
    """With sequence-level losses, the gradients of other sequences are unchanged."""
    tensors = rows(0)
    tensors[tensor_name][4][tensors["mask"][4].index(1)] = non_finite
    plain, with_non_finite = rows(0), our_loss(tensors, TRL[name][1], 6)
    assert math.isfinite(with_non_finite["loss"])
    without_non_finite = our_loss(plain, TRL[name][1], 6)
    for row in (0, 1, 2, 3, 5):
        assert with_non_finite["gradient"][row] == pytest.approx(
            without_non_finite["gradient"][row], abs=1e-12
        )
    assert all(math.isfinite(slope) for slope in with_non_finite["gradient"][4])
