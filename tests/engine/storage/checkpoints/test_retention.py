"""Why a checkpoint stays."""

from engine.storage.checkpoints.retention import reasons


def test_newest_best_and_marked_stay() -> None:
    steps = range(0, 100, 10)
    means = {0: 0.1, 10: 0.9, 20: 0.5, 30: 0.9, 40: 0.2}
    found = reasons(steps, means, {50: {"pinned"}, 90: {"exported"}}, keep_last=2, keep_best=2)
    assert found == {
        0: (),
        10: ("best",),
        20: (),
        30: ("best",),
        40: (),
        50: ("pinned",),
        60: (),
        70: (),
        80: ("newest",),
        90: ("exported", "newest"),
    }


def test_of_equals_the_earlier_is_better() -> None:
    found = reasons([1, 2, 3], {1: 0.5, 2: 0.5, 3: 0.5}, {}, keep_last=1, keep_best=1)
    assert found == {1: ("best",), 2: (), 3: ("newest",)}


def test_without_a_limit_all_stay() -> None:
    found = reasons([1, 2], {}, {}, keep_last=None, keep_best=0)
    assert found == {1: ("newest",), 2: ("newest",)}
