"""Token advantages against values computed by hand."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol.config.algorithm import GroupMean, GroupStd, PlainReward
from engine.reward.advantage import credit

numbers = st.floats(-3, 3)
batches = st.lists(st.lists(numbers, max_size=6), max_size=5)


def test_turn_return_discounts_later_rewards() -> None:
    assert credit.turn_returns([1.0, 0.0, 2.0], 0.5) == [1.5, 1.0, 2.0]
    assert credit.turn_returns([], 0.5) == []
    assert credit.terminal_rewards(3.0, 3) == [0.0, 0.0, 3.0]
    assert credit.terminal_rewards(3.0, 0) == []


@given(numbers, st.lists(numbers, max_size=6))
def test_turn_rewards_sum_to_the_trajectory_reward(reward: float, turns: list[float]) -> None:
    result = credit.by_turn(reward, turns, len(turns))
    assert result[:-1] == turns[:-1]
    assert math.fsum(result) == pytest.approx(reward if turns else 0.0, abs=1e-9)
    assert credit.by_turn(reward, [], 3) == [0.0, 0.0, reward]


def test_gae_matches_hand_computed_values() -> None:
    """δ = (0.4−0.5, 0.9−0.4, 1−0.9) = (−0.1, 0.5, 0.1) with γ = 1; λ = 0.5 from the end on."""
    result = credit.gae([0.0, 0.0, 1.0], [0.5, 0.4, 0.9], 1.0, 0.5)
    assert result == pytest.approx([-0.1 + 0.5 * 0.55, 0.5 + 0.05, 0.1])
    assert credit.gae([], [], 1.0, 0.5) == []
    discounted = credit.gae([0.0, 1.0], [0.5, 0.5], 0.9, 0.0)
    assert discounted == pytest.approx([0.45 - 0.5, 0.5])


@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=9), st.floats(0.5, 1))
def test_gae_with_lambda_1_is_return_minus_value(
    pairs: list[tuple[float, float]], g: float
) -> None:
    rewards, values = (list(column) for column in zip(*pairs, strict=True))
    returns = credit.turn_returns(rewards, g)
    expected = [r - v for r, v in zip(returns, values, strict=True)]
    assert credit.gae(rewards, values, g, 1.0) == pytest.approx(expected, abs=1e-9)


def test_turn_advantages_compare_turns_from_the_same_state() -> None:
    """Three trajectories: two visit state 7 (twice and once); state 9 is visited once."""
    anchors = [[1, 7, 7], [1, 7], [1, 9]]
    returns = [[0.9, 1.0, 0.8], [0.0, 0.3], [0.6, 0.5]]
    result = credit.turn_advantages(GroupMean(), anchors, returns)
    assert result[0] == pytest.approx([0.4, 0.3, 0.1])
    assert result[1] == pytest.approx([-0.5, -0.4])
    assert result[2] == pytest.approx([0.1, 0.0])
    assert result[2][1] == 0.0
    scaled = credit.turn_advantages(GroupStd(floor=0), anchors, returns)
    std = math.sqrt((0.3**2 + 0.1**2 + 0.4**2) / 3)
    assert scaled[0][1] == pytest.approx(0.3 / std)
    assert credit.turn_advantages(GroupMean(), [[1], [1]], [[0.5], [0.5]]) == [[0.0], [0.0]]


@pytest.mark.parametrize("non_finite", [math.inf, -math.inf, math.nan])
def test_non_finite_divergence_counts_as_zero(non_finite: float) -> None:
    assert credit.divergence([-1.0, non_finite, -1.0], [-1.5, -1.0, non_finite]) == [0.5, 0.0, 0.0]
    assert credit.divergence([-math.inf], [-math.inf]) == [0.0]


def test_kl_in_reward_is_accumulated_to_earlier_tokens() -> None:
    assert credit.kl_in_reward([1.0, 1.0, 1.0], [0.1, 0.2, -0.4], 0.5) == pytest.approx(
        [1.05, 1.1, 1.2]
    )
    assert credit.kl_in_reward([], [], 0.5) == []


def test_kl_centred_matches_hand_computed_values() -> None:
    result = credit.kl_centred([[1.0, 1.0], [-1.0]], [[0.3, 0.0], [0.6]], 0.1)
    assert result[0] == pytest.approx([1.0, 1.03])
    assert result[1] == pytest.approx([-1.03])


@given(batches, st.floats(0, 1))
def test_kl_centred_preserves_the_sum(advantages: list[list[float]], weight: float) -> None:
    k1 = [[a * a - 1 for a in row] for row in advantages]
    shifted = credit.kl_centred(advantages, k1, weight)
    before, after = (math.fsum(a for row in rows for a in row) for rows in (advantages, shifted))
    assert after == pytest.approx(before, abs=1e-6)


def test_whitened_matches_hand_computed_values_and_zeroes_ties() -> None:
    result = credit.whitened([[1.0, 1.0], [], [-2.0, 4.0]])
    std = math.sqrt((0 + 0 + 9 + 9) / 4)
    assert [a for row in result for a in row] == pytest.approx([0, 0, -3 / std, 3 / std])
    assert credit.whitened([[0.1 + 0.2, 0.3], [0.3]]) == [[0.0, 0.0], [0.0]]
    assert credit.whitened([[5.0]]) == [[0.0]]
    assert credit.whitened([]) == []


@given(batches)
def test_whitened_tokens_have_mean_0_and_deviation_1(advantages: list[list[float]]) -> None:
    flat = [a for row in credit.whitened(advantages) for a in row]
    if any(abs(a) > 1e-6 for a in flat):
        assert math.fsum(flat) / len(flat) == pytest.approx(0, abs=1e-6)
        assert math.fsum(a * a for a in flat) / len(flat) == pytest.approx(1, abs=1e-6)


def test_to_mean_size_1_weights_sequences_equally() -> None:
    """Sequences have equal weight: |A| is 1 and 3, mean 2, whatever their lengths."""
    result = credit.to_mean_size_1([[1.0] * 4, [-3.0]], [0.25, 1.0])
    assert result == [[0.5] * 4, [-1.5]]
    assert credit.to_mean_size_1([[0.0], [0.0, 0.0]], [1.0, 1.0]) == [[0.0], [0.0, 0.0]]
    assert credit.to_mean_size_1([], []) == []


def test_plain_reward_has_no_baseline() -> None:
    from engine.reward.advantage.group import advantages, has_signal

    assert advantages(PlainReward(), [0.5, None, 0.5]) == [0.5, None, 0.5]
    assert has_signal(PlainReward(), [0.5, 0.5])
    assert not has_signal(PlainReward(), [None])
    assert not has_signal(GroupMean(), [0.5, 0.5])


def test_to_mean_size_1_zeroes_negligible_advantages() -> None:
    assert credit.to_mean_size_1([[1e-12]], [1.0]) == [[0.0]]


def test_mismatched_token_counts_raise_value_error() -> None:
    with pytest.raises(ValueError, match=r"zip\(\)"):
        credit.divergence([-1.0], [-1.0, -2.0])
    with pytest.raises(ValueError, match=r"zip\(\)"):
        credit.kl_in_reward([1.0], [0.1, 0.2], 0.5)
    with pytest.raises(ValueError, match=r"zip\(\)"):
        credit.to_mean_size_1([[1.0]], [1.0, 1.0])
    with pytest.raises(ValueError, match=r"zip\(\)"):
        credit.gae([1.0], [0.5, 0.5], 1.0, 1.0)
    with pytest.raises(ValueError, match=r"zip\(\)"):
        credit.kl_centred([[1.0, 1.0]], [[0.1]], 1.0)
    with pytest.raises(ValueError, match=r"zip\(\)"):
        credit.kl_centred([[1.0], [1.0]], [[0.1]], 1.0)
