"""Settings of a sweep (`[sweep]`): which settings vary, how they are searched, and its limits."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from engine.protocol.base import Section

SettingValue = bool | int | float | str
"""Value of one setting in a sweep."""
MOST_COMBINATIONS = 10_000


class Range(Section):
    """Range of a number, both ends included."""

    low: int | float
    high: int | float
    log: bool = False
    """Search on a logarithmic scale, as is usual for learning rates."""
    step: int | float | None = None
    """Distance between two values, counted from `low`; empty: any number of the range."""

    @model_validator(mode="after")
    def _check_bounds(self) -> "Range":
        if self.low >= self.high:
            raise ValueError(f"has low {self.low:g} and high {self.high:g}: low must be below high")
        if self.log and self.low <= 0:
            raise ValueError(f"has low {self.low:g}, but a log-scale range needs low above 0")
        if self.log and self.step is not None:
            raise ValueError("has both log and step: use one of them, or list the values")
        if self.step is not None and not 0 < self.step <= self.high - self.low:
            raise ValueError(
                f"has step {self.step:g}, which must be above 0 and at most high − low"
            )
        return self

    def values(self) -> list[int | float] | None:
        """All values of a range with a step, rounded to remove floating-point errors; None without
        a step, or if there are more than `MOST_COMBINATIONS`."""
        if self.step is None:
            return None
        count = int((self.high - self.low) / self.step + 1e-9)
        if count >= MOST_COMBINATIONS:
            return None
        found = [self.low + number * self.step for number in range(count + 1)]
        return [value if isinstance(value, int) else float(f"{value:.12g}") for value in found]


def _flatten(values: Any, prefix: str = "") -> Any:
    """Tables below a section (`train.lr = …`) with dotted keys instead; others unchanged."""
    if not isinstance(values, Mapping):
        return values
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping) and not _is_range(value):
            flat |= _flatten(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def _is_range(value: Mapping[str, Any]) -> bool:
    """Whether a table is a range: settings below a section have lists or tables as values."""
    ends = [value[name] for name in Range.model_fields if name in value]
    return any(not isinstance(end, (Mapping, list, tuple)) for end in ends)


def _check_list(values: Any) -> Any:
    if not isinstance(values, (list, tuple)) or not values:
        raise ValueError("is neither a list of values nor a range: write [1, 2] or { low, high }")
    if not all(isinstance(value, (bool, int, float, str)) for value in values):
        raise ValueError("lists something other than numbers, strings, true and false")
    if len({(isinstance(value, bool), value) for value in values}) < len(values):
        raise ValueError("lists a value twice: list each value once")
    return values


def _kind_of(values: Any) -> str:
    return "range" if isinstance(values, (Mapping, Range)) else "list"


ValueList = Annotated[tuple[SettingValue, ...], BeforeValidator(_check_list)]
Parameter = Annotated[
    Annotated[ValueList, Tag("list")] | Annotated[Range, Tag("range")], Discriminator(_kind_of)
]
Parameters = Annotated[dict[str, Parameter], BeforeValidator(_flatten)]


class SweepConfig(Section):
    """Sweep: training runs that differ in a few settings, compared by their validations."""

    parameters: Parameters = Field(default_factory=dict)
    """Settings that vary, by dotted key: a list of values, or a range
    (`{ low = 1e-5, high = 1e-3, log = true }`)."""
    method: Literal["grid", "random", "tpe"] = "tpe"
    """Search method: all combinations (`grid`; in random order with pruning), random ones, or those
    that a model of the results so far expects to be good (`tpe`, Bergstra et al. 2011)."""
    trials: Annotated[int, Field(ge=1, le=MOST_COMBINATIONS)] | None = None
    """Number of combinations of values to try. Empty: all for `grid`, 20 for other methods."""
    seeds: Annotated[int, Field(ge=1, le=64)] = 1
    """Runs of each combination, with the seeds train.seed, train.seed + 1 …; the result is their
    mean."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Seed of the search."""
    prune: Literal["none", "halving"] = "halving"
    """Early stopping: successive halving (ASHA, 1810.05934) stops runs whose validation is not
    among the best of the runs that reached the same step."""
    reduction_factor: Annotated[int, Field(ge=2, le=16)] = 3
    """Successive halving keeps one of this many runs per decision; the interval to the next
    decision grows by the same factor."""
    first_validation: Annotated[int, Field(ge=1, le=10_000)] = 1
    """First validation after which successive halving can stop runs, counted from 1; the one before
    training does not count."""
    budget_hours: Annotated[float, Field(gt=0)] | None = None
    """Time budget of all runs together, in hours; empty: no limit."""
    budget_usd: Annotated[float, Field(gt=0)] | None = None
    """Budget of all runs together, in US dollars: judge calls plus run time at
    evaluate.usd_per_hour; empty: no limit."""

    @model_validator(mode="after")
    def _check_method(self) -> "SweepConfig":
        for key, values in self.parameters.items():
            if self.method == "grid" and isinstance(values, Range) and values.step is None:
                raise ValueError(
                    f'has method "grid" and a range without step for {key}: list the values, add '
                    'step, or set method to "tpe" or "random"'
                )
        return self


UNSUITABLE = {
    "name": "has no effect on training.",
    "description": "has no effect on training.",
    "track": "has no effect on training.",
    "evaluate": "has no effect on training.",
    "sft": "has no effect on a run that trains by reinforcement learning.",
    "sweep": "is a setting of the sweep itself.",
    "judge": "changes what a validation measures, so results could not be compared.",
    "backend.cluster": "sets the machine that trains, which is the same for all runs of a sweep.",
    "agent.source": "sets the source of the rollouts, which is the same for all runs of a sweep.",
    "scenarios.validation": "changes what a validation measures, so results could not be compared.",
    "train.seed": "is set by the sweep: set sweep.seeds to run each combination with more seeds.",
    "train.validate_every": "must be the same for all runs, since their validations are compared.",
}
"""Settings (or sections) that cannot be swept, with the end of the sentence that says why."""

BASELINE = ("model.name", "agent.", "train.warmup")
"""Settings that change a run's first validation, the reference of win rates."""


def unsuitable(key: str, judged: bool, prune: str) -> str:
    """Why a setting cannot be swept, phrased to follow the key; empty if it can. `judged`: runs are
    compared by win rate, not by reward; `prune`: the setting sweep.prune."""
    for name, reason in UNSUITABLE.items():
        if key == name or key.startswith(f"{name}."):
            return reason
    if key.startswith("reward.") and not judged:
        return (
            "changes the reward that a validation measures, so results could not be compared; to "
            "sweep rewards, enable the judge, which compares runs by win rate."
        )
    if judged and key.startswith(BASELINE):
        return (
            "changes the untrained policy, against which the judge compares each run: win rates "
            "of such runs could not be compared with each other."
        )
    if key == "train.steps" and prune != "none":
        return (
            "changes the last step of a run, but successive halving compares runs at the same "
            'steps: set sweep.prune to "none".'
        )
    return ""
