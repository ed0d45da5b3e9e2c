"""Named methods: for each, when to use it and the values it gives to `[train.algorithm]`.

Data only; `algorithm.py` documents the keys. Where a paper leaves a number open, it is that of the
reference implementation: TRL 1.16, verl, verl-agent, ART 0.5.18.
"""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

PresetName = Literal[
    "atelier",
    "grpo",
    "dr_grpo",
    "dapo",
    "gspo",
    "cispo",
    "rloo",
    "reinforce_pp",
    "gigpo",
    "ppo",
    "art",
]


class Preset(NamedTuple):
    title: str
    when: str
    """Recommended use, in one line."""
    values: Mapping[str, Any]


PPO_CLIP = {"kind": "clipped", "low": 0.2, "high": 0.2}
NORMED = {"kind": "group_std", "floor": 0.0, "epsilon": 1e-6}

PRESETS: Mapping[str, Preset] = {
    "atelier": Preset(
        "Atelier", "Default: robust to noisy judges and to completions of any length.", {}
    ),
    "grpo": Preset(
        "GRPO",
        "To compare with papers: advantages divided by the group's standard deviation, KL penalty.",
        {
            "advantage": {"kind": "group_std", "floor": 0.0, "epsilon": 1e-4},
            "loss": PPO_CLIP,
            "average": "sequences",
            "kl": 0.04,
        },
    ),
    "dr_grpo": Preset(
        "Dr. GRPO",
        "When completions grow longer without improving: no length or difficulty bias.",
        {"loss": PPO_CLIP, "average": "constant"},
    ),
    "dapo": Preset(
        "DAPO",
        "For long reasoning when entropy collapses: resamples groups without signal.",
        {
            "advantage": NORMED,
            "loss": {"kind": "clipped", "low": 0.2, "high": 0.28},
            "refills": 3,
            "overlong": 0.2,
        },
    ),
    "gspo": Preset(
        "GSPO",
        "For mixture-of-experts models, or several updates per batch: sequence-level clipping.",
        {
            "advantage": NORMED,
            "loss": {"kind": "gspo", "low": 3e-4, "high": 4e-4},
            "average": "sequences",
            "updates": 4,
        },
    ),
    "cispo": Preset(
        "CISPO",
        "When rollouts are expensive: several updates per batch, no token loses its gradient.",
        {
            "advantage": NORMED,
            "loss": {"kind": "cispo", "low": 1.0, "high": 4.0},
            "ratio_to": "sampler",
            "correction": {"kind": "none"},
            "updates": 4,
        },
    ),
    "rloo": Preset(
        "RLOO",
        "For small groups (2 to 4): unbiased leave-one-out baseline and a KL penalty.",
        {
            "advantage": {"kind": "leave_one_out"},
            "loss": PPO_CLIP,
            "average": "constant",
            "kl": 0.05,
            "kl_in": "reward",
        },
    ),
    "reinforce_pp": Preset(
        "REINFORCE++",
        "For many scenarios in small groups: advantages normalized over the batch.",
        {"batch_scale": "whiten", "loss": PPO_CLIP},
    ),
    "gigpo": Preset(
        "GiGPO",
        "When states recur, as in games, web pages and tools: turn-level credit.",
        {
            "advantage": {"kind": "group_std", "floor": 0.1, "epsilon": 0.0},
            "credit": {"kind": "anchors", "weight": 1.0, "discount": 0.95},
            "loss": PPO_CLIP,
            "average": "sequences",
        },
    ),
    "ppo": Preset(
        "PPO",
        "For long episodes where one step decides: token-level credit from a value head.",
        {
            "advantage": {"kind": "reward"},
            "credit": {
                "kind": "value",
                "discount": 1.0,
                "decay": 0.95,
                "weight": 0.1,
                "clip": 0.5,
                "lr": 1e-4,
            },
            "batch_scale": "whiten",
            "loss": PPO_CLIP,
            "updates": 4,
        },
    ),
    "art": Preset(
        "ART",
        "For projects that come from OpenPipe's ART: the update rule of its version 0.5.18.",
        {
            "advantage": NORMED,
            "batch_scale": "mean_abs",
            "loss": {"kind": "cispo", "low": 1.0, "high": 4.0},
            "ratio_to": "sampler",
            "correction": {"kind": "none"},
            "average": "trajectories",
            "max_grad_norm": 0.1,
            "weight_decay": 0.1,
        },
    ),
}
"""Presets by name.

`art` equals ART if ART packs all sequences of the step into one row, which is then its only
optimizer step (ART takes one optimizer step per row): population standard deviation + 1e-6, weight
1 / trained tokens per trajectory, mean |A|·w = 1, CISPO in [0, 5] against the sampler, mean over
the tokens of the row; then AdamW (0.9, 0.99) with the gradient norm clipped to 0.1 and weight decay
0.1.
"""
