"""Plan of a sweep: its space, its size and the settings of its runs. Pure.

Raises ConfigError for what cannot be swept, before anything starts.
"""

import copy
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from engine.protocol.config.project import ProjectConfig
from engine.protocol.config.sweep import MOST_COMBINATIONS, Range, SettingValue
from engine.protocol.config.validation import checked_config, set_key
from engine.protocol.problems import ConfigError
from engine.protocol.records.sweeps import (
    Space,
    SweepMetric,
    SweepPlan,
    SweepRecord,
    SweepRun,
    SweepTrial,
    Values,
)
from engine.training.sweep.halving import decision_steps
from engine.training.sweep.results import outcome_of
from engine.training.sweep.search import combinations, listed, propose

USUAL_TRIALS = 20
MOST_RUNS = 10_000
MOST_CHECKED = 512
"""Combinations of values that are checked before the start."""


def plan_of(config: ProjectConfig, settings: Mapping[str, Any]) -> SweepPlan:
    """Plan of the sweep of a project. `settings` are the nested settings that `config` was parsed
    from. Raises ConfigError if nothing varies, nothing can be compared, or a combination of values
    is invalid."""
    sweep = config.sweep
    _check(config)
    if config.train.patience is not None and sweep.prune != "none":
        raise _bad(
            "Successive halving compares runs at the same steps, but train.patience may end a run "
            "earlier.",
            'Remove train.patience, or set sweep.prune to "none".',
        )
    space = space_of(config, settings)
    total = combinations(space)
    if sweep.method == "grid" and (total is None or total > MOST_COMBINATIONS):
        raise _bad(
            f"The grid has more than {MOST_COMBINATIONS} combinations.", "List fewer values."
        )
    usual = total if sweep.method == "grid" and total else USUAL_TRIALS
    trials = min(sweep.trials or usual, total or MOST_COMBINATIONS)
    if trials * sweep.seeds > MOST_RUNS:
        raise _bad(
            f"The sweep has more than {MOST_RUNS} runs.", "Lower sweep.trials or sweep.seeds."
        )
    decisions = decision_steps(config)
    values = listed(space, sweep.method, trials, sweep.seed, shuffled=bool(decisions))
    configs = _check_combinations(settings, space, values)
    steps = sum(one.train.steps for one in configs) if values else trials * config.train.steps
    return SweepPlan(
        sweep=sweep,
        space=space,
        metric=metric_of(config),
        trials=trials,
        seeds=sweep.seeds,
        steps=steps * sweep.seeds,
        prune_at=decisions,
        values=values,
    )


def metric_of(config: ProjectConfig) -> SweepMetric:
    return "validation/win_rate" if config.judge.enabled else "validation/reward"


def space_of(config: ProjectConfig, settings: Mapping[str, Any]) -> Space:
    """Swept settings by dotted key, each with its values or range as numbers of the setting's type:
    1 becomes 1.0 for a real number. `settings` are the nested settings that `config` was parsed
    from. Raises ConfigError for an invalid value."""
    space: Space = {}
    for key, values in config.sweep.parameters.items():
        if isinstance(values, Range):
            low, high = (_typed(settings, key, end) for end in (values.low, values.high))
            step = values.step
            if isinstance(low, float):
                step = None if step is None else float(step)
            elif isinstance(step, float) and not step.is_integer():
                raise _bad(f"{key} is a whole number, so its step cannot be {step:g}.")
            space[key] = Range(low=low, high=high, log=values.log, step=step)  # type: ignore[arg-type]
        else:
            space[key] = tuple(dict.fromkeys(_typed(settings, key, value) for value in values))
    return space


def settings_of(settings: Mapping[str, Any], values: Values, seed: int | None) -> dict[str, Any]:
    """Nested settings of a run: `settings` with the values of its trial (`values`, by dotted key)
    and `seed` as train.seed (None: unchanged)."""
    changed = copy.deepcopy(dict(settings))
    for key, value in values.items():
        set_key(changed, key, value)
    if seed is not None:
        set_key(changed, "train.seed", seed)
    return changed


def config_of(record: SweepRecord, trial: SweepTrial, run: SweepRun) -> ProjectConfig:
    """Settings of a run. Raises ConfigError if the combination of values is invalid."""
    return checked_config(settings_of(record.settings, trial.values, run.seed))


def trials_of(
    plan: SweepPlan, config: ProjectConfig, settings: Mapping[str, Any]
) -> list[SweepTrial]:
    """Return the trials of a sweep that are known at its start: one per entry of `plan.values`;
    empty if each trial is proposed only when it starts. `settings` are the nested settings that
    `config` was parsed from."""
    return [
        make_trial(number, values, config, settings) for number, values in enumerate(plan.values, 1)
    ]


def make_trial(
    number: int, values: Values, config: ProjectConfig, settings: Mapping[str, Any]
) -> SweepTrial:
    """Return trial `number` (from 1) with the swept `values`, by dotted key, and one run per seed.
    `settings` are the nested settings that `config` was parsed from; `values` replace some of
    them."""
    try:
        steps = checked_config(settings_of(settings, values, None)).train.steps
    except ConfigError:  # said when its first run starts, which then fails
        steps = config.train.steps
    first = config.train.seed
    seeds = range(first, first + config.sweep.seeds)
    return SweepTrial(
        number=number, values=values, runs=tuple(SweepRun(seed=seed, steps=steps) for seed in seeds)
    )


def with_next_trial(record: SweepRecord) -> SweepRecord | None:
    """The record with one more trial that the search proposes; None if it has all planned ones, or
    all combinations have been tried."""
    if len(record.trials) >= record.planned or record.config.sweep.method == "grid":
        return None
    sweep = record.config.sweep
    outcomes = [outcome_of(trial) for trial in record.trials]
    method = "tpe" if sweep.method == "tpe" else "random"
    values = propose(record.space, method, sweep.seed, outcomes)  # type: ignore[arg-type]
    if values is None:
        return None
    trial = make_trial(len(record.trials) + 1, values, record.config, record.settings)
    return record.model_copy(update={"trials": (*record.trials, trial)})


def _check(config: ProjectConfig) -> None:
    if not config.sweep.parameters:
        raise _bad(
            "The project has no settings to sweep.",
            "Add settings under [sweep.parameters], for example train.lr = [1e-5, 1e-4].",
        )
    if not config.scenarios.validation:
        raise ConfigError.of(
            "config.bad_sweep",
            "A sweep compares validation results, and the project has no validation scenarios.",
            "Set scenarios.validation.",
            where="scenarios.validation",
        )
    if config.train.seed + config.sweep.seeds > 2**31:
        raise _bad("The seed of the last run would exceed 2³¹ − 1.", "Lower train.seed.")


def _check_combinations(
    settings: Mapping[str, Any], space: Space, values: Sequence[Values]
) -> list[ProjectConfig]:
    """Settings of each listed trial. Without a list, the corners of the space are checked. Raises
    ConfigError for the first invalid combination."""
    ends = [(v.low, v.high) if isinstance(v, Range) else v for v in space.values()]
    corners = (dict(zip(space, one, strict=True)) for one in itertools.product(*ends))
    checked = values or itertools.islice(corners, MOST_CHECKED)
    return [_checked(settings, one) for one in checked]


def _checked(settings: Mapping[str, Any], values: Values) -> ProjectConfig:
    try:
        return checked_config(settings_of(settings, values, None))
    except ConfigError as error:
        words = ", ".join(f"{key} {value}" for key, value in values.items())
        problem = error.problem.model_copy(
            update={"message": f"With {words}: {error.problem.message}"}
        )
        raise ConfigError(problem) from error


def _typed(settings: Mapping[str, Any], key: str, value: SettingValue) -> SettingValue:
    """The value as the setting stores it. Raises ConfigError if it is invalid."""
    found: Any = checked_config(settings_of(settings, {key: value}, None))
    for part in key.split("."):
        found = found[part] if isinstance(found, Mapping) else getattr(found, part)
    return found if isinstance(found, (bool, int, float, str)) else value


def _bad(message: str, hint: str = "") -> ConfigError:
    return ConfigError.of("config.bad_sweep", message, hint, where="sweep")
