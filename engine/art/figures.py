"""Our metrics of a step by the names that ART gives them. Pure."""

from collections.abc import Mapping

NAMES = {
    "loss": "loss/train",
    "grad_norm": "loss/grad_norm",
    "entropy": "loss/entropy",
    "kl": "loss/kl_policy_ref",
    "lr": "loss/learning_rate",
    "tokens_per_s/train": "throughput/train_tok_per_sec",
    "time_s/training": "time/step_trainer_s",
}
"""Ours → those of ART 0.5.18 (unsloth/train.py, metrics_taxonomy.py)."""

GRADIENT_STEPS = "data/step_num_gradient_steps"
OWN = "atelier"
"""Before what ART has no name for."""


def art_metrics(ours: Mapping[str, float], skipped: bool, updates: int) -> dict[str, float]:
    """All of them: those that ART knows under its names, the others behind `atelier/`."""
    known = {NAMES[name]: value for name, value in ours.items() if name in NAMES}
    others = {f"{OWN}/{name}": value for name, value in ours.items() if name not in NAMES}
    return {**known, **others, GRADIENT_STEPS: 0.0 if skipped else float(updates)}
