"""Settings of a sweep: forms of parameters, and errors that name line, key and nearest key."""

import tomllib

import pytest

from engine.protocol.config.project import ProjectConfig
from engine.protocol.config.sweep import Range, SweepConfig
from engine.protocol.config.validation import config_problems


def parsed(text: str) -> SweepConfig:
    return SweepConfig.model_validate(tomllib.loads(text))


def test_parameters_are_named_by_dotted_keys_or_by_tables() -> None:
    sweep = parsed(
        """
        [parameters]
        "train.lr" = [1e-4, 2e-4]
        train.groups = { low = 4, high = 16, step = 4 }
        model.dtype = ["float32", "bfloat16"]
        train.algorithm.loss = { low = [0.1, 0.2], high = { low = 0.2, high = 0.3 } }
        """
    )
    assert sweep.parameters == {
        "train.lr": (1e-4, 2e-4),
        "train.groups": Range(low=4, high=16, step=4),
        "model.dtype": ("float32", "bfloat16"),
        "train.algorithm.loss.low": (0.1, 0.2),
        "train.algorithm.loss.high": Range(low=0.2, high=0.3),
    }
    assert SweepConfig.model_validate_json(sweep.model_dump_json()) == sweep
    assert SweepConfig.model_validate(sweep.model_dump(mode="json")) == sweep


def test_later_table_replaces_a_quoted_key() -> None:
    sweep = parsed('[parameters]\n"train.lr" = [1e-4]\ntrain.lr = [2e-4]')
    assert sweep.parameters == {"train.lr": (2e-4,)}


def test_steps_of_a_range_have_no_rounding_errors() -> None:
    assert Range(low=0.1, high=0.5, step=0.1).values() == [0.1, 0.2, 0.3, 0.4, 0.5]
    assert Range(low=2, high=9, step=3).values() == [2, 5, 8]
    assert Range(low=0.0, high=1.0).values() is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('"train.lrr" = [1e-4]', ["line 2", "no `lrr` in [train]", "Did you mean `lr`?"]),
        ("tran.lr = [1e-4]", ["line 2", "no `tran`", "Did you mean `train`?"]),
        ("train.lr.x = [1]", ["line 2"]),
        ("train.lr = [1e-4, 2.0]", ["line 2", "train.lr should be less than or equal to 1"]),
        ("train.lr = [1e-4, 'a']", ["train.lr should be a valid number"]),
        ("train.groups = [8, 1.5]", ["train.groups should be a valid integer"]),
        ("train.groups = { low = 4, high = 9000 }", ["should be less than or equal to 4096"]),
        ("train.lr = { low = 1e-3, high = 1e-4 }", ["low must be below high"]),
        ("train.lr = { low = 0, high = 1e-4, log = true }", ["log-scale range needs low above 0"]),
        ("train.lr = { low = 1e-5, hihg = 1e-4 }", ["no `hihg`", "Did you mean `high`?"]),
        ("train.lr = { low = 1, high = 2, log = true, step = 1 }", ["both log and step"]),
        ("train.lr = { low = 0.1, high = 0.2, step = 0.5 }", ["at most high − low"]),
        ("train.lr = 1e-4", ["is neither a list of values nor a range"]),
        ("train.lr = []", ["is neither a list of values nor a range"]),
        ("train.lr = [1e-4, 1e-4]", ["lists a value twice"]),
        ("train.lr = [[1e-4]]", ["something other than numbers"]),
        ("train.seed = [1, 2]", ["set sweep.seeds"]),
        ("train.steps = [10, 20]", ['set sweep.prune to "none"']),
        ("reward.weights.rules = [1, 2]", ["could not be compared"]),
        ("scenarios.validation = ['a', 'b']", ["changes what a validation measures"]),
        ("track.wandb.on = [true, false]", ["has no effect on training"]),
        ("sweep.trials = [1]", ["is a setting of the sweep itself"]),
    ],
)
def test_bad_parameter_is_reported_in_one_sentence(text: str, words: list[str]) -> None:
    toml = f"[sweep.parameters]\n{text}\n"
    problems = config_problems(tomllib.loads(toml), toml)
    assert problems
    for word in words:
        assert any(word in str(problem) for problem in problems), [str(p) for p in problems]


def test_grid_needs_values() -> None:
    toml = '[sweep]\nmethod = "grid"\nparameters.train.lr = { low = 1e-5, high = 1e-4 }\n'
    (problem,) = config_problems(tomllib.loads(toml), toml)
    assert "a range without step for train.lr" in str(problem)


def test_judged_runs_compare_rewards_but_not_baselines() -> None:
    judge = {"enabled": True, "models": ["openai/gpt-5.4"]}
    weights = {"judge": judge, "sweep": {"parameters": {"reward.weights.rules": [1, 2]}}}
    assert config_problems(weights) == []
    ProjectConfig.model_validate(weights)
    agents = {"judge": judge, "sweep": {"parameters": {"agent.file": ["a.py", "b.py"]}}}
    (problem,) = config_problems(agents)
    assert "changes the untrained policy" in str(problem)


def test_variants_and_presets_can_be_swept() -> None:
    parameters = {
        "train.algorithm.preset": ["grpo", "dapo"],
        "train.algorithm.loss.kind": ["clipped", "cispo"],
    }
    assert config_problems({"sweep": {"parameters": parameters}}) == []
