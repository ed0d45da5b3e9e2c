"""Plan of a sweep: types, sizes, settings of runs, and combinations that are invalid."""

from typing import Any

import pytest

from engine.protocol.config.project import ProjectConfig
from engine.protocol.config.sweep import Range
from engine.protocol.problems import ConfigError
from engine.protocol.records.sweeps import SweepPlan, SweepRecord
from engine.training.sweep.plan import config_of, plan_of, trials_of, with_next_trial


def planned(parameters: dict[str, Any], train: dict[str, Any] | None = None, **sweep: Any) -> Any:
    settings: dict[str, Any] = {"train": {"steps": 12, "validate_every": 3, **(train or {})}}
    config = ProjectConfig.model_validate(
        {**settings, "sweep": {"parameters": parameters, **sweep}}
    )
    return plan_of(config, settings), config, settings


def record_of(plan: SweepPlan, config: ProjectConfig, settings: dict[str, Any]) -> SweepRecord:
    return SweepRecord(
        id="01ARZ3NDEKTSV4RRFFQ69G5FAV",
        name="amber-fox",
        project="p",
        started_at=0,
        settings=settings,
        config=config,
        space=plan.space,
        planned=plan.trials,
        trials=tuple(trials_of(plan, config, settings)),
    )


def test_values_have_the_types_of_their_settings() -> None:
    parameters = {
        "train.lr": {"low": 1e-5, "high": 1, "log": True},
        "train.algorithm.kl": [0, 1],
        "train.groups": {"low": 4, "high": 8.0, "step": 2.0},
    }
    plan, _, _ = planned(parameters)
    assert plan.space["train.lr"] == Range(low=1e-5, high=1.0, log=True)
    assert isinstance(plan.space["train.lr"].high, float)
    assert [type(value) for value in plan.space["train.algorithm.kl"]] == [float, float]
    assert isinstance(plan.space["train.groups"].high, int)


def test_size_of_a_grid_and_of_a_search() -> None:
    grid, _, _ = planned(
        {"train.lr": [1e-5, 1e-4], "model.rank": [4, 8, 16]}, method="grid", seeds=2
    )
    assert (grid.trials, grid.seeds, grid.steps) == (6, 2, 144)
    assert grid.prune_at == (3, 9)
    assert len(grid.values) == 6
    tpe, _, _ = planned({"train.lr": {"low": 1e-5, "high": 1e-4}})
    assert (tpe.trials, tpe.steps, tpe.values) == (20, 240, [])
    few, _, _ = planned({"train.lr": [1e-5, 1e-4]}, trials=50)
    assert few.trials == 2  # there are no more


def test_early_stopping_and_successive_halving_exclude_each_other() -> None:
    lr, early = {"train.lr": [1e-5, 1e-4]}, {"patience": 2}
    with pytest.raises(ConfigError, match=r"train\.patience may end a run earlier"):
        planned(lr, early)
    assert planned(lr, early, prune="none")[0].trials == 2


def test_steps_can_be_swept_without_pruning() -> None:
    plan, _, _ = planned({"train.steps": [6, 12]}, method="grid", prune="none")
    assert plan.steps == 18
    assert plan.prune_at == ()


def test_settings_of_a_run_keep_presets_and_seeds() -> None:
    parameters = {"train.algorithm.preset": ["grpo", "dapo"]}
    plan, config, settings = planned(
        parameters, {"algorithm": {"kl": 0.5}, "seed": 7}, method="grid", seeds=2, prune="none"
    )
    record = record_of(plan, config, settings)
    second = record.trials[1]
    run = config_of(record, second, second.runs[1])
    assert (run.train.algorithm.preset, run.train.algorithm.kl, run.train.seed) == ("dapo", 0.5, 8)
    assert run.train.algorithm.average == "tokens"  # of the preset, since nothing else sets it
    assert not run.sweep.parameters
    assert settings["train"] == {
        "steps": 12,
        "validate_every": 3,
        "algorithm": {"kl": 0.5},
        "seed": 7,
    }


def test_invalid_combinations_are_refused_before_the_start() -> None:
    parameters = {"train.algorithm.updates": [1, 4], "train.groups": [2, 8]}
    for method in ("grid", "tpe"):
        with pytest.raises(
            ConfigError, match=r"With train.algorithm.updates 4, train.groups 2: .*"
        ):
            planned(parameters, method=method)


@pytest.mark.parametrize(
    ("parameters", "sweep", "message"),
    [
        ({}, {}, "no settings to sweep"),
        ({"train.lr": {"low": 1e-5, "high": 1.0, "step": 1e-5}}, {"method": "grid"}, "more than"),
        ({"train.groups": {"low": 1, "high": 4, "step": 1.5}}, {}, "its step cannot be 1.5"),
        ({"train.lr": {"low": 0.1, "high": 0.2}}, {"trials": 10_000, "seeds": 2}, "10000 runs"),
    ],
)
def test_bad_sizes_are_refused(
    parameters: dict[str, Any], sweep: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        planned({**parameters}, **sweep)


def test_next_trial_is_proposed_until_all_planned_ones_exist() -> None:
    plan, config, settings = planned({"train.lr": {"low": 1e-5, "high": 1e-4}}, trials=2)
    record = record_of(plan, config, settings)
    assert record.trials == ()
    first = with_next_trial(record)
    assert first is not None
    assert with_next_trial(record) == first
    second = with_next_trial(first)
    assert second is not None
    assert [trial.number for trial in second.trials] == [1, 2]
    assert with_next_trial(second) is None
