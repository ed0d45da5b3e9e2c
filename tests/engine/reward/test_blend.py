"""Named parts become one number; what is missing is said, never taken as 0."""

import pytest

from engine.protocol.config.project import Constraint, RewardConfig
from engine.protocol.problems import RolloutError
from engine.reward.blend import blend


def test_weights_default_to_one() -> None:
    config = RewardConfig(weights={"answer": 0.5})
    assert blend(config, {"answer": 1.0, "sources": 0.25}, {}) == pytest.approx(0.75)


def test_no_part_is_unscored() -> None:
    with pytest.raises(RolloutError) as raised:
        blend(RewardConfig(), {}, {"moves": 3})
    assert raised.value.problem.code == "reward.none"


def test_a_required_part_that_is_missing_is_unscored() -> None:
    with pytest.raises(RolloutError, match="answer"):
        blend(RewardConfig(required=("answer",)), {"sources": 1.0}, {})


def test_veto_and_penalty_in_order() -> None:
    penalty = Constraint(part="turns", above=3, effect="penalty", value=0.2)
    veto = Constraint(part="illegal", above=0, effect="veto", value=-1)
    config = RewardConfig(constraints=(penalty, veto))
    parts = {"rules": 1.0}
    assert blend(config, parts, {"turns": 5, "illegal": 0}) == pytest.approx(0.8)
    assert blend(config, parts, {"turns": 5, "illegal": 1}) == -1


def test_a_constraint_without_its_value_is_unscored() -> None:
    config = RewardConfig(constraints=(Constraint(part="illegal", above=0),))
    with pytest.raises(RolloutError, match="illegal"):
        blend(config, {"rules": 1.0}, {})
