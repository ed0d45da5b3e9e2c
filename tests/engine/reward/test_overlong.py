"""Soft overlong punishment, by hand: max_tokens 20 480 and a buffer of a fifth."""

import pytest

from engine.reward.overlong import overlong


@pytest.mark.parametrize(
    ("lengths", "part"),
    [
        ([], 0.0),
        ([16_384], 0.0),
        ([18_432], -0.5),
        ([100, 18_432, 200], -0.5),
        ([20_480], -1.0),
        ([30_000], -1.0),
    ],
)
def test_overlong_penalty_grows_linearly_within_the_buffer(lengths: list[int], part: float) -> None:
    assert overlong(lengths, 20_480, 0.2) == pytest.approx(part)
