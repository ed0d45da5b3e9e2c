"""Names of ART's metrics, mapped from Atelier's.

Trackers receive every metric by both names, so that charts and queries made for ART keep working.
The help page is generated from this mapping.

Names as of ART 0.5.18 (`src/art/metrics.py`, `metrics_taxonomy.py`, `loss.py`).
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple


class Name(NamedTuple):
    """Mapping of one ART metric. `*` stands for any name, the same on both sides."""

    art: str
    ours: tuple[str, ...]
    """Keys of Atelier's metrics from which it is computed; all of them must be present."""
    how: str
    """Description of the computation, if the value is not simply copied."""
    made: Callable[[list[float]], float | None] = lambda values: values[0]


NAMES: tuple[Name, ...] = (
    Name("train/reward", ("reward/mean",), ""),
    Name("train/reward_std_dev", ("reward/std",), ""),
    Name(
        "train/exception_rate",
        ("unscored", "trajectories"),
        "share of unscored trajectories",
        lambda values: values[0] / values[1] if values[1] else None,
    ),
    Name("train/*", ("reward/part/*",), ""),
    Name("val/reward", ("validation/reward",), ""),
    Name("loss/train", ("loss",), ""),
    Name("loss/entropy", ("entropy",), ""),
    Name("loss/grad_norm", ("grad_norm",), ""),
    Name("loss/learning_rate", ("lr",), ""),
    Name("loss/kl_policy_ref", ("kl",), ""),
    Name("loss/importance_ratio_mean", ("ratio/mean",), ""),
    Name("loss/importance_ratio_p99", ("ratio/p99",), ""),
    Name("loss/clipped_token_fraction", ("clip/low", "clip/high"), "the sum of both", sum),
    Name("throughput/train_tok_per_sec", ("tokens_per_s/train",), ""),
    Name("data/step_num_trajectories", ("trajectories",), ""),
    Name("data/step_trainer_tokens", ("tokens/forwarded",), ""),
    Name("time/step_wall_s", ("time_s/step",), ""),
    Name("time/step_trainer_s", ("time_s/training",), ""),
    Name("time/step_actor_s", ("time_s/rolling_out",), ""),
)


def art_metrics(ours: Mapping[str, float]) -> dict[str, float]:
    """Convert metrics to the names of the ART library. `ours` has Atelier's values by metric key;
    metrics that cannot be derived from them are absent."""
    values_by_name: dict[str, float] = {}
    for name in NAMES:
        if name.art.endswith("*"):
            values_by_name |= _starred(name, ours)
        elif all(key in ours for key in name.ours):
            value = name.made([ours[key] for key in name.ours])
            values_by_name |= {} if value is None else {name.art: value}
    return values_by_name


def _starred(name: Name, ours: Mapping[str, float]) -> dict[str, float]:
    """Map all metrics that match a name with `*`. A reward part named `reward`, for example, does
    not replace the reward."""
    begin, taken = name.ours[0].removesuffix("*"), {one.art for one in NAMES}
    named = {
        name.art.replace("*", key.removeprefix(begin)): value
        for key, value in ours.items()
        if key.startswith(begin)
    }
    return {key: value for key, value in named.items() if key not in taken}
