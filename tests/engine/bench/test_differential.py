"""Our losses beside TRL's and ART's own functions, on random tensors, in their own environment."""

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
    """Sequences of several lengths with holes, ties and an empty one among the masks."""
    chance = random.Random(seed)

    def numbers(low: float, high: float) -> list[list[float]]:
        return [[chance.uniform(low, high) for _ in range(LONGEST)] for _ in range(count)]

    logprobs = numbers(-4, 0)
    masks = [[int(chance.random() < 0.8) for _ in range(LONGEST)] for _ in range(count)]
    masks[0] = [1] + [0] * (LONGEST - 1)
    advantages = [chance.uniform(-1, 1) for _ in range(count)]
    advantages[1:4] = [0.5, 0.5, 0.0][: max(count - 1, 0)]
    return {
        "logprobs": logprobs,
        "old": [[x + chance.gauss(0, 0.3) for x in row] for row in logprobs],
        "reference": [[x + chance.gauss(0, 0.5) for x in row] for row in logprobs],
        "mask": masks,
        "advantages": advantages,
    }


def ours(tensors: dict[str, Any], algorithm: Algorithm, normaliser: float) -> dict[str, Any]:
    """The same work through our functions, as the trainer calls them."""
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
        asked = torch.tensor(tensors["reference"], dtype=torch.double)[mask]
        losses = losses + algorithm.kl * k3(tokens.logprobs_M, asked)
    counts = mask.sum(1)[sequences] if algorithm.average == "sequences" else 1
    weights = (
        torch.tensor(tensors["weights"], dtype=torch.double)[mask] if "weights" in tensors else 1
    )
    loss = (losses / counts * weights).sum() / normaliser
    loss.backward()
    assert logprobs.grad is not None
    return {"loss": loss.item(), "gradient": logprobs.grad.tolist()}


def apart(one: dict[str, Any], other: dict[str, Any]) -> float:
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
def test_losses_and_gradients_are_those_of_trl(reference):
    cases, expected = [], []
    for name, (settings, algorithm) in TRL.items():
        for seed in range(8):
            tensors = rows(seed)
            cases.append({"library": "trl", "settings": settings, "tensors": tensors})
            divisor = normaliser(tensors["mask"], algorithm.average)
            expected.append((f"{name} {seed}", ours(tensors, algorithm, divisor)))
    for (name, own), theirs in zip(expected, reference(cases), strict=True):
        assert apart(own, theirs) <= TOLERANCE, name


@pytest.mark.long
def test_the_loss_of_art_is_that_of_art(reference):
    cases, expected = [], []
    for seed in range(8):
        chance = random.Random(seed)
        packed = rows(seed, count=1)
        del packed["reference"]
        packed["old"] = [[x + chance.gauss(0, 1.5) for x in packed["logprobs"][0]]]
        packed["advantages"] = [[chance.uniform(-2, 2) for _ in range(LONGEST)]]
        packed["weights"] = [[chance.uniform(0, 2) for _ in range(LONGEST)]]
        packed["mask"] = [[1, 1, *(int(chance.random() < 0.8) for _ in range(LONGEST - 2))]]
        packed["sequences"] = [[0] * LONGEST]
        cases.append({"library": "art", "settings": {}, "tensors": packed})
        # ART adds 1e-6 to the number of tokens
        expected.append(ours(packed, Algorithm(preset="art"), sum(packed["mask"][0]) + 1e-6))
    for own, theirs in zip(expected, reference(cases), strict=True):
        assert apart(own, theirs) <= TOLERANCE


@pytest.mark.parametrize("odd", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("whose", ["logprobs", "old"])
def test_numbers_that_are_none_weigh_nothing_and_leave_the_others_alone(odd, whose):
    tensors = rows(0)
    place = tensors["mask"][4].index(1)
    tensors[whose][4][place] = odd
    without = {**tensors, "mask": [list(row) for row in tensors["mask"]]}
    without["mask"][4][place] = 0
    for _, algorithm in TRL.values():
        if algorithm.kl or isinstance(algorithm.loss, Gspo) or algorithm.average == "sequences":
            continue
        assert apart(ours(tensors, algorithm, 50), ours(without, algorithm, 50)) == 0


GROUPS = [
    [0.0, 1.0, 1.0, 0.5],
    [0.3, None, -2.0, 0.31],
    [None, 0.7, None, None],
    [None] * 4,
    [0.25] * 4,
    [0.0, 0.0, 0.0, 1e-3],
    [3.0, -1.0, None, 3.0],
]
"""Differences, ties, unscored ones, one alone, nobody."""


def spread(rewards: list[float | None], ddof: int) -> float:
    known = [reward for reward in rewards if reward is not None]
    mean = sum(known) / len(known)
    return math.sqrt(sum((r - mean) ** 2 for r in known) / max(len(known) - ddof, 1))


@pytest.mark.long
def test_advantages_are_those_of_trl(reference):
    """TRL divides by the sample's deviation + 1e-4, we by the population's."""
    trainers = [("grpo", "none"), ("grpo", "group"), ("rloo", "none")]
    everyone = [reward for group in GROUPS for reward in group]
    cases = [
        {"trainer": t, "scale_rewards": s, "rewards": everyone, "size": 4} for t, s in trainers
    ]
    plain, scaled, left_out = reference(cases)
    kind = GroupStd(floor=0.0)
    for number, group in enumerate(GROUPS):
        place = slice(4 * number, 4 * number + 4)
        ours = {
            "plain": (advantages(GroupMean(), group), plain[place]),
            "scaled": (advantages(kind, group), scaled[place]),
            "left out": (advantages(LeaveOneOut(), group), left_out[place]),
        }
        for name, (own, theirs) in ours.items():
            factor = 1.0
            if name == "scaled" and any(own_i for own_i in own):
                factor = (spread(group, 0) + kind.epsilon) / (spread(group, 1) + 1e-4)
            assert [(a or 0.0) * factor for a in own] == pytest.approx(theirs, abs=TOLERANCE), name


@pytest.mark.parametrize("odd", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("whose", ["logprobs", "old"])
@pytest.mark.parametrize("name", ["grpo", "gspo"])
def test_a_number_that_is_none_stays_in_its_sequence(odd, whose, name):
    """Where a sequence is a unit, the others' gradients are what they were."""
    tensors = rows(0)
    tensors[whose][4][tensors["mask"][4].index(1)] = odd
    plain, broken = rows(0), ours(tensors, TRL[name][1], 6)
    assert math.isfinite(broken["loss"])
    whole = ours(plain, TRL[name][1], 6)
    for row in (0, 1, 2, 3, 5):
        assert broken["gradient"][row] == pytest.approx(whole["gradient"][row], abs=1e-12)
    assert all(math.isfinite(slope) for slope in broken["gradient"][4])
