"""Algorithm presets: defaults, overrides, and one-sentence errors."""

from typing import Any, get_args

import pytest
from pydantic import ValidationError

from engine.protocol.config.algorithm import Algorithm, AnchorCredit, Cispo, Clipped, GroupStd
from engine.protocol.config.presets import PRESETS, PresetName
from engine.protocol.config.project import ProjectConfig
from engine.protocol.config.validation import config_problems


@pytest.mark.parametrize("name", PRESETS)
def test_preset_survives_serialization(name: Any) -> None:
    algorithm = Algorithm(preset=name)
    dumped = algorithm.model_dump()
    assert Algorithm.model_validate(dumped) == algorithm
    assert Algorithm.model_validate_json(algorithm.model_dump_json()) == algorithm
    for key, value in PRESETS[name].values.items():
        assert dumped[key] == value
    config = ProjectConfig.model_validate({"train": {"algorithm": {"preset": name}}})
    assert config.train.algorithm == algorithm


def test_every_preset_name_has_a_description() -> None:
    assert set(get_args(PresetName)) == set(PRESETS)
    assert all(len(preset.when) <= 100 and preset.when.endswith(".") for preset in PRESETS.values())


def test_serialized_algorithm_is_independent_of_its_preset() -> None:
    """A run keeps its values even if a later version changes the preset."""
    dumped = Algorithm(preset="grpo").model_dump() | {"kl": 0.0, "average": "tokens"}
    assert Algorithm.model_validate(dumped).kl == 0


def test_explicit_values_override_the_preset() -> None:
    own = Algorithm.model_validate({"preset": "dapo", "refills": 0, "loss": {"kind": "cispo"}})
    assert (own.refills, own.overlong) == (0, 0.2)
    assert own.loss == Cispo()
    inside = Algorithm.model_validate({"preset": "dapo", "loss": {"high": 0.4}})
    assert inside.loss == Clipped(low=0.2, high=0.4)
    kind = Algorithm.model_validate({"preset": "grpo", "advantage": {"kind": "group_std"}})
    assert kind.advantage == GroupStd(floor=0, epsilon=1e-4)
    assert Algorithm(preset="ppo", credit=AnchorCredit(), advantage=GroupStd()).updates == 4


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"preset": "grpoo"}, "train.algorithm.preset should be 'atelier'"),
        ({"preset": ["grpo"]}, "train.algorithm.preset should be"),
        ({"loss": {"kind": "clipped", "low": 3}}, "train.algorithm.loss.low should be less"),
        ({"kl_in": "advantage"}, "set kl above 0"),
        ({"preset": "rloo", "kl": 0}, "set kl above 0"),
        ({"credit": {"kind": "value"}}, "set advantage to"),
        ({"advantage": {"kind": "reward"}}, "without a baseline"),
        (
            {"advantage": {"kind": "reward"}, "credit": {"kind": "anchors"}},
            "compares turns within a group",
        ),
        ({"preset": "cispo", "correction": {"kind": "sequence_mask"}}, "leaves nothing to correct"),
        ({"preset": "ppo", "refills": 1}, "set refills to 0"),
    ],
)
def test_invalid_algorithm_gives_one_sentence(values: dict[str, Any], message: str) -> None:
    (problem,) = config_problems({"train": {"algorithm": values}})
    assert message in problem.message
    assert problem.message.startswith("train.algorithm")
    assert problem.message.count(".") <= 5


def test_updates_need_as_many_groups() -> None:
    (problem,) = config_problems({"train": {"groups": 2, "algorithm": {"preset": "gspo"}}})
    assert problem.message.startswith("train has 4 updates for 2 groups")
    with pytest.raises(ValidationError, match="unknown"):
        Algorithm.model_validate({"unknown": 1})
