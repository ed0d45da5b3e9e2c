"""Token advantages against values computed by hand."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol.config.algorithm import GroupMean, GroupStd, PlainReward
from engine.reward.advantage import credit

numbers = st.floats(-3, 3)
batches = st.lists(st.lists(numbers, max_size=6), max_size=5)


def test_a_turn_is_worth_what_comes_after_it() -> None:
    assert credit.turn_returns([1.0, 0.0, 2.0], 0.5) == [1.5, 1.0, 2.0]
    assert credit.turn_returns([], 0.5) == []
    assert credit.terminal_rewards(3.0, 3) == [0.0, 0.0, 3.0]
    assert credit.terminal_rewards(3.0, 0) == []


@given(numbers, st.lists(numbers, max_size=6))
def test_what_turns_are_worth_adds_up_to_the_reward(reward: float, turns: list[float]) -> None:
    found = credit.by_turn(reward, turns, len(turns))
    assert found[:-1] == turns[:-1]
    assert math.fsum(found) == pytest.approx(reward if turns else 0.0, abs=1e-9)
    assert credit.by_turn(reward, [], 3) == [0.0, 0.0, reward]


def test_gae_by_hand() -> None:
    """δ = (0.4−0.5, 0.9−0.4, 1−0.9) = (−0.1, 0.5, 0.1) with γ = 1; λ = 0.5 from the end on."""
    found = credit.gae([0.0, 0.0, 1.0], [0.5, 0.4, 0.9], 1.0, 0.5)
    assert found == pytest.approx([-0.1 + 0.5 * 0.55, 0.5 + 0.05, 0.1])
    assert credit.gae([], [], 1.0, 0.5) == []
    discounted = credit.gae([0.0, 1.0], [0.5, 0.5], 0.9, 0.0)
    assert discounted == pytest.approx([0.45 - 0.5, 0.5])


@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=9), st.floats(0.5, 1))
def test_gae_with_decay_1_is_return_minus_value(pairs: list[tuple[float, float]], g: float) -> None:
    rewards, values = (list(column) for column in zip(*pairs, strict=True))
    returns = credit.turn_returns(rewards, g)
    expected = [r - v for r, v in zip(returns, values, strict=True)]
    assert credit.gae(rewards, values, g, 1.0) == pytest.approx(expected, abs=1e-9)


def test_turns_are_compared_with_those_from_the_same_state() -> None:
    """Three attempts meet state 7 twice, once and never; state 9 has only one visitor."""
    anchors = [[1, 7, 7], [1, 7], [1, 9]]
    returns = [[0.9, 1.0, 0.8], [0.0, 0.3], [0.6, 0.5]]
    found = credit.turn_advantages(GroupMean(), anchors, returns)
    assert found[0] == pytest.approx([0.4, 0.3, 0.1])
    assert found[1] == pytest.approx([-0.5, -0.4])
    assert found[2] == pytest.approx([0.1, 0.0])
    assert found[2][1] == 0.0
    scaled = credit.turn_advantages(GroupStd(floor=0), anchors, returns)
    std = math.sqrt((0.3**2 + 0.1**2 + 0.4**2) / 3)
    assert scaled[0][1] == pytest.approx(0.3 / std)
    assert credit.turn_advantages(GroupMean(), [[1], [1]], [[0.5], [0.5]]) == [[0.0], [0.0]]


@pytest.mark.parametrize("broken", [math.inf, -math.inf, math.nan])
def test_a_distance_that_is_not_finite_counts_nothing(broken: float) -> None:
    assert credit.divergence([-1.0, broken, -1.0], [-1.5, -1.0, broken]) == [0.5, 0.0, 0.0]
    assert credit.divergence([-math.inf], [-math.inf]) == [0.0]


def test_a_distance_in_the_reward_is_paid_by_all_before_it() -> None:
    assert credit.kl_in_reward([1.0, 1.0, 1.0], [0.1, 0.2, -0.4], 0.5) == pytest.approx(
        [1.05, 1.1, 1.2]
    )
    assert credit.kl_in_reward([], [], 0.5) == []


def test_a_distance_in_the_advantage_moves_it_by_hand() -> None:
    found = credit.kl_centred([[1.0, 1.0], [-1.0]], [[0.3, 0.0], [0.6]], 0.1)
    assert found[0] == pytest.approx([1.0, 1.03])
    assert found[1] == pytest.approx([-1.03])


@given(batches, st.floats(0, 1))
def test_leaning_keeps_the_sum(advantages: list[list[float]], weight: float) -> None:
    k1 = [[a * a - 1 for a in row] for row in advantages]
    leaned = credit.kl_centred(advantages, k1, weight)
    before, after = (math.fsum(a for row in rows for a in row) for rows in (advantages, leaned))
    assert after == pytest.approx(before, abs=1e-6)


def test_whitening_by_hand_and_ties() -> None:
    found = credit.whitened([[1.0, 1.0], [], [-2.0, 4.0]])
    std = math.sqrt((0 + 0 + 9 + 9) / 4)
    assert [a for row in found for a in row] == pytest.approx([0, 0, -3 / std, 3 / std])
    assert credit.whitened([[0.1 + 0.2, 0.3], [0.3]]) == [[0.0, 0.0], [0.0]]
    assert credit.whitened([[5.0]]) == [[0.0]]
    assert credit.whitened([]) == []


@given(batches)
def test_whitened_tokens_have_mean_0_and_deviation_1(advantages: list[list[float]]) -> None:
    flat = [a for row in credit.whitened(advantages) for a in row]
    if any(abs(a) > 1e-6 for a in flat):
        assert math.fsum(flat) / len(flat) == pytest.approx(0, abs=1e-6)
        assert math.fsum(a * a for a in flat) / len(flat) == pytest.approx(1, abs=1e-6)


def test_mean_size_by_hand() -> None:
    """Sequences weigh alike: |A| is 1 and 3, mean 2, however many tokens they have."""
    found = credit.to_mean_size_1([[1.0] * 4, [-3.0]], [0.25, 1.0])
    assert found == [[0.5] * 4, [-1.5]]
    assert credit.to_mean_size_1([[0.0], [0.0, 0.0]], [1.0, 1.0]) == [[0.0], [0.0, 0.0]]
    assert credit.to_mean_size_1([], []) == []


def test_a_plain_reward_has_no_baseline() -> None:
    from engine.reward.advantage.group import advantages, has_signal

    assert advantages(PlainReward(), [0.5, None, 0.5]) == [0.5, None, 0.5]
    assert has_signal(PlainReward(), [0.5, 0.5])
    assert not has_signal(PlainReward(), [None])
    assert not has_signal(GroupMean(), [0.5, 0.5])


def test_only_what_is_not_zero_is_scaled() -> None:
    assert credit.to_mean_size_1([[1e-12]], [1.0]) == [[0.0]]


def test_numbers_of_other_tokens_are_refused() -> None:
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
