"""Rewards outside of 0 to 1 are drawn to the scale of their group."""

import pytest

from studio.widgets.tables.group_dots import axis_of, place_dots
from studio.widgets.tables.reward_bar import Part, full_reward


@pytest.mark.parametrize(
    ("rewards", "ends"),
    [
        ([0.2, 0.7, None], (0.0, 1.0)),
        ([], (0.0, 1.0)),
        ([3.0, 12.0, float("nan")], (0.0, 12.0)),
        ([-4.0, 0.5], (-4.0, 1.0)),
    ],
)
def test_axis_widens_to_the_rewards_of_a_group(
    rewards: list[float | None], ends: tuple[float, float]
) -> None:
    assert axis_of(rewards) == ends


def test_high_rewards_are_not_piled_up_at_the_end() -> None:
    places = [dot.x for dot in place_dots([3.0, 6.0, 12.0], 100)]
    assert places == [0.25, 0.5, 1.0]


def test_full_bar_has_room_for_the_parts() -> None:
    assert full_reward([Part("a", 0.4, "plot-1"), Part("b", -3.0, "plot-2")]) == 1.0
    assert full_reward([Part("a", 8.0, "plot-1"), Part("b", 4.0, "plot-2")]) == 12.0
