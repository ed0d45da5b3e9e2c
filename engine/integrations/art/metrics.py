"""Metrics of `train()`, under ART's names (protocol/records/art_names.py) where ART leaves the
measurement to its backend. Pure."""

from collections.abc import Mapping

from engine.protocol.records.art_names import NAMES, art_metrics

OURS_TO_SAY = ("loss/", "throughput/", "data/step_trainer_tokens", "time/step_trainer_s")
"""Prefixes of metrics that a backend measures. ART computes the others from the trajectories."""
GRADIENT_STEPS = "data/step_num_gradient_steps"
OWN = "atelier"
"""Before what ART has no name for."""


def training_metrics(ours: Mapping[str, float], skipped: bool, updates: int) -> dict[str, float]:
    """All metrics of a step: those known to ART under its names, the others behind `atelier/`."""
    known = {
        name: value for name, value in art_metrics(ours).items() if name.startswith(OURS_TO_SAY)
    }
    told = {name.ours[0] for name in NAMES if name.art in known and not name.how}
    others = {f"{OWN}/{name}": value for name, value in ours.items() if name not in told}
    return {**known, **others, GRADIENT_STEPS: 0.0 if skipped else float(updates)}
