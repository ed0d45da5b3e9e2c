"""Reward = Σ weight · part, then constraints. A missing required part never counts as zero."""

from collections.abc import Mapping

from engine.protocol.config.project import Constraint, RewardConfig
from engine.protocol.problems import RolloutError

MOST_REWARD = 1e9
"""Largest absolute value of a reward: sums and squares over a whole run stay finite."""


def blend(config: RewardConfig, parts: Mapping[str, float], metrics: Mapping[str, float]) -> float:
    """Weighted sum of the reward parts, then lowered or replaced by constraints on parts and
    `metrics` that are violated. Raises RolloutError, which leaves the trajectory unscored, if a
    required or constrained value or every part is missing, or if the sum is out of range."""
    missing = [name for name in config.required if name not in parts]
    if missing:
        raise RolloutError.of(
            "reward.part_missing",
            f"The reward part {missing[0]} is missing.",
            "Return the part from the agent or rewards.py, or remove it from reward.required.",
        )
    if not parts:
        raise RolloutError.of(
            "reward.none",
            "This trajectory has no score: the agent returned no reward and there is no judge.",
            'Return {"reward": …} from rollout(), or write a rewards.py.',
        )
    reward = sum(config.weights.get(name, 1.0) * value for name, value in parts.items())
    for constraint in config.constraints:
        reward = _apply(constraint, reward, {**metrics, **parts})
    if not abs(reward) <= MOST_REWARD:  # also what is no number
        raise RolloutError.of(
            "reward.out_of_range",
            f"The reward of this trajectory is {reward:g}.",
            "Scale its reward parts down, or their weights under reward.weights.",
        )
    return reward


def _apply(constraint: Constraint, reward: float, values: Mapping[str, float]) -> float:
    if constraint.part not in values:
        raise RolloutError.of(
            "reward.constraint_blind",
            f"The constraint on {constraint.part} cannot be checked: the value is missing.",
            "Return the value as a reward part or metric, or remove the constraint.",
        )
    value = values[constraint.part]
    broken = (constraint.above is not None and value > constraint.above) or (
        constraint.below is not None and value < constraint.below
    )
    if not broken:
        return reward
    return constraint.value if constraint.effect == "veto" else reward - constraint.value
