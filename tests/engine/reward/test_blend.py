"""Blending of reward parts into one number; a missing part is an error, never 0."""

import pytest

from engine.protocol.config.project import Constraint, RewardConfig
from engine.protocol.problems import RolloutError
from engine.reward.blend import MOST_REWARD, blend


def test_reward_part_weights_default_to_one() -> None:
    config = RewardConfig(weights={"answer": 0.5})
    assert blend(config, {"answer": 1.0, "sources": 0.25}, {}) == pytest.approx(0.75)


def test_no_reward_part_raises_rollout_error() -> None:
    with pytest.raises(RolloutError) as raised:
        blend(RewardConfig(), {}, {"moves": 3})
    assert raised.value.problem.code == "reward.none"


def test_missing_required_part_raises_rollout_error() -> None:
    with pytest.raises(RolloutError, match="answer"):
        blend(RewardConfig(required=("answer",)), {"sources": 1.0}, {})


def test_veto_and_penalty_constraints_apply_in_order() -> None:
    penalty = Constraint(part="turns", above=3, effect="penalty", value=0.2)
    veto = Constraint(part="illegal", above=0, effect="veto", value=-1)
    config = RewardConfig(constraints=(penalty, veto))
    parts = {"rules": 1.0}
    assert blend(config, parts, {"turns": 5, "illegal": 0}) == pytest.approx(0.8)
    assert blend(config, parts, {"turns": 5, "illegal": 1}) == -1


def test_constraint_without_value_raises_rollout_error() -> None:
    config = RewardConfig(constraints=(Constraint(part="illegal", above=0),))
    with pytest.raises(RolloutError, match="illegal"):
        blend(config, {"rules": 1.0}, {})


@pytest.mark.parametrize(
    ("constraint", "rewards"),
    [
        (Constraint(part="n", above=3, effect="penalty", value=0.25), [1.0, 1.0, 0.75]),
        (Constraint(part="n", below=3, effect="penalty", value=0.25), [0.75, 1.0, 1.0]),
        (Constraint(part="n", above=3, effect="veto", value=-2), [1.0, 1.0, -2.0]),
    ],
)
def test_constraint_applies_beyond_its_bound(constraint: Constraint, rewards: list[float]) -> None:
    config = RewardConfig(constraints=(constraint,))
    assert [blend(config, {"rules": 1.0}, {"n": n}) for n in (2, 3, 4)] == rewards


def test_constraint_prefers_reward_part_over_metric_of_same_name() -> None:
    config = RewardConfig(constraints=(Constraint(part="rules", above=0, effect="veto", value=9),))
    assert blend(config, {"rules": 0.0}, {"rules": 1.0}) == 0.0


@pytest.mark.parametrize("sign", [1, -1])
def test_out_of_range_reward_raises_rollout_error(sign: int) -> None:
    assert blend(RewardConfig(), {"a": sign * MOST_REWARD}, {}) == sign * MOST_REWARD
    with pytest.raises(
        RolloutError, match=r"The reward of this trajectory is -?2e\+09\."
    ) as raised:
        blend(RewardConfig(), {"a": sign * 2 * MOST_REWARD}, {})
    assert raised.value.problem.code == "reward.out_of_range"
    assert raised.value.problem.hint is not None
    assert raised.value.problem.hint.startswith("Scale its reward parts down, or their weights")
    with pytest.raises(RolloutError, match="is nan"):
        blend(RewardConfig(), {"a": float("nan")}, {})


@pytest.mark.parametrize(
    ("config", "parts", "code", "message", "hint"),
    [
        (
            RewardConfig(required=("a", "b")), {"a": 1.0}, "reward.part_missing",
            "The reward part b is missing.",
            "Return the part from the agent or rewards.py, or remove it from reward.required.",
        ),
        (
            RewardConfig(), {}, "reward.none",
            "This trajectory has no score: the agent returned no reward and there is no judge.",
            'Return {"reward": …} from rollout(), or write a rewards.py.',
        ),
        (
            RewardConfig(constraints=(Constraint(part="b", above=0),)), {"a": 1.0},
            "reward.constraint_blind",
            "The constraint on b cannot be checked: the value is missing.",
            "Return the value as a reward part or metric, or remove the constraint.",
        ),
    ],
    ids=["required", "none", "constraint"],
)  # fmt: skip
def test_unscored_error_has_code_message_and_hint(
    config: RewardConfig, parts: dict[str, float], code: str, message: str, hint: str
) -> None:
    with pytest.raises(RolloutError) as raised:
        blend(config, parts, {})
    problem = raised.value.problem
    assert (problem.code, problem.message, problem.hint) == (code, message, hint)
