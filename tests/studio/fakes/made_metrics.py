"""Metrics of a simulated step that do not depend on rewards."""

import random


def lengths(step: int) -> dict[str, float]:
    return {
        "tokens/completion_mean": 230 + 60 * min(1, step / 12) - 1.8 * max(0, step - 14),
        "tokens/completion_p10": 130 - 0.4 * step,
        "tokens/completion_p50": 220 + 50 * min(1, step / 12) - 1.6 * max(0, step - 14),
        "tokens/completion_p90": 400 + 90 * min(1, step / 12) - 4 * max(0, step - 14),
    }


def drift(dice: random.Random) -> dict[str, float]:
    """Drift between sampler and trainer in bfloat16."""
    largest = abs(dice.gauss(0.3, 0.05))
    return {
        "ratio/mean": 1 + dice.gauss(0, 0.002),
        "ratio/p1": 0.93 + dice.gauss(0, 0.008),
        "ratio/p50": 1 + dice.gauss(0, 0.0005),
        "ratio/p99": 1.08 + dice.gauss(0, 0.01),
        "ratio/max": 1 + 1.3 * largest,
        "logprob_gap/mean": abs(dice.gauss(0.009, 0.001)),
        "logprob_gap/p99": abs(dice.gauss(0.075, 0.006)),
        "logprob_gap/max": largest,
        "kl/sampler": abs(dice.gauss(2e-4, 4e-5)),
        "publish_gap": abs(dice.gauss(0.01, 0.002)),
        "ess": 0.985 + dice.gauss(0, 0.004),
        "masked": 0.0,
    }


def use(dice: random.Random) -> dict[str, float]:
    """Hardware and throughput metrics."""
    train, sample = 0.39 + dice.gauss(0, 0.012), 0.17 + dice.gauss(0, 0.009)
    return {
        "goodput/train": train,
        "hardware/train": train * 1.12,
        "goodput/sample": sample,
        "hardware/sample": sample * 1.3,
        "rows/sample": 41 + dice.gauss(0, 2),
        "sharing/train": 0.31 + dice.gauss(0, 0.01),
        "sharing/sample": 0.14 + dice.gauss(0, 0.008),
        "tokens/forwarded": 21_400 + dice.gauss(0, 900),
        "time_s/sampling": 66 + dice.gauss(0, 3),
    }


def signs(dice: random.Random) -> dict[str, float]:
    """Reward-hacking indicators: hardly any."""
    return {
        "watch/addresses_judge": 0.0,
        "watch/repetition": abs(dice.gauss(0.04, 0.006)),
        "watch/tool_calls": 3.2 + dice.gauss(0, 0.2),
        "judge/rules": 0.72 + dice.gauss(0, 0.03),
        "judge/local": 0.84 + dice.gauss(0, 0.01),
        "judge/canaries": 1.0,
        "groups/labelled": float(dice.random() < 0.2),
        "groups/again": 0.0,
    }
