"""Differences between the log-probs of sampler and trainer."""

import pytest

from engine.policy.logprob_gap import TOLERANCE, followed, mean_gap, stale_or_different


def test_mean_gap_is_the_mean_absolute_difference() -> None:
    assert mean_gap([-1.0, -2.0, -4.0], [-1.5, -1.0, -4.0]) == 0.5
    with pytest.raises(ValueError, match="longer"):
        mean_gap([-1.0], [-1.0, -2.0])


@pytest.mark.parametrize(
    ("sampled", "share"),
    [
        pytest.param([-1.0, -2.0, -3.0], 0.0, id="the old adapter"),
        pytest.param([-2.0, -4.0, -6.0], 1.0, id="the new adapter"),
        pytest.param([-1.5, -3.0, -4.5], 0.5, id="half way"),
        pytest.param([0.0, 0.0, 0.0], -1.0, id="the other way"),
        pytest.param([-3.0, -6.0, -9.0], 2.0, id="twice as far"),
    ],
)
def test_followed_is_the_share_of_the_trainers_change(sampled: list[float], share: float) -> None:
    before, trained = [-1.0, -2.0, -3.0], [-2.0, -4.0, -6.0]
    assert followed(sampled, trained, before) == pytest.approx(share)


def test_followed_is_the_least_squares_slope() -> None:
    """Trainer change (2, 1, 0), sampler change (2, 0, 0): slope 4 / 5, standard error
    (0.8 / 2 / 5)^½ = 0.28; four further tokens without change make it 0.16."""
    trainer_change, sampler_change = [2.0, 1.0, 0.0], [2.0, 0.0, 0.0]
    assert followed(sampler_change, trainer_change, [0.0] * 3) is None
    assert followed(
        sampler_change + [0.0] * 4, trainer_change + [0.0] * 4, [0.0] * 7
    ) == pytest.approx(0.8)


def test_followed_is_none_above_a_standard_error_of_a_quarter() -> None:
    """Trainer (1, 0), sampler (1, x): slope 1, standard error x; a third token divides x by √2."""
    assert followed([1.0, 0.25], [1.0, 0.0], [0.0] * 2) == 1.0
    assert followed([1.0, 0.26], [1.0, 0.0], [0.0] * 2) is None
    assert followed([1.0, 0.35, 0.0], [1.0, 0.0, 0.0], [0.0] * 3) == 1.0
    assert followed([1.0, 0.36, 0.0], [1.0, 0.0, 0.0], [0.0] * 3) is None


def test_followed_of_one_token_has_no_error() -> None:
    assert followed([-1.5], [-2.0], [-1.0]) == 0.5


def test_followed_is_none_without_a_change() -> None:
    assert followed([-1.0, -3.0], [-1.0, -2.0], [-1.0, -2.0]) is None


def test_mismatched_lengths_raise_value_error() -> None:
    for lengths in ((2, 1, 1), (1, 2, 1), (1, 1, 2), (2, 2, 1), (2, 1, 2), (1, 2, 2)):
        with pytest.raises(ValueError, match=r"zip\(\) argument"):
            followed(*([float(n) for n in range(length)] for length in lengths))


def test_unchanged_sampler_is_reported_as_stale_adapter() -> None:
    before, now = [-1.0, -2.0], [-1.02, -2.04]
    problem = stale_or_different(before, now, before, "bfloat16")
    assert problem is not None
    assert problem.code == "policy.stale_adapter"
    assert problem.message == (
        "The sampler did not load the new adapter: its log-probs show 0% of the trainer's "
        "change (difference 0.03 nats per token)."
    )
    assert problem.hint == (
        'Resume from the last checkpoint. If this happens again, set backend.sampler = "torch" '
        "to sample without vLLM."
    )


def test_negative_share_is_reported_as_zero_percent() -> None:
    problem = stale_or_different([-0.5], [-2.0], [-1.0], "float32")
    assert problem is not None
    assert "log-probs show 0% of the trainer's change (difference 1.5 nats" in problem.message


def test_half_of_the_change_is_accepted() -> None:
    before, now = [-1.0], [-1.25]
    assert stale_or_different([-1.125], now, before, "bfloat16") is None
    problem = stale_or_different([-1.12], now, before, "bfloat16")
    assert problem is not None
    assert problem.code == "policy.stale_adapter"
    assert "log-probs show 48% of" in problem.message


@pytest.mark.parametrize(
    ("dtype", "most"), [("float32", 1e-4), ("bfloat16", 0.15), ("float16", 0.05)]
)
def test_tolerance_depends_on_the_dtype(dtype: str, most: float) -> None:
    assert TOLERANCE[dtype] == most
    assert stale_or_different([0.0], [-most], [], dtype) is None
    problem = stale_or_different([0.0], [-most * 1.01], [], dtype)
    assert problem is not None
    assert problem.code == "policy.publish_differs"


def test_loaded_but_different_adapter_is_reported() -> None:
    problem = stale_or_different([-3.0], [-2.75], [-1.0], "bfloat16")
    assert problem is not None
    assert problem.code == "policy.publish_differs"
    assert problem.message == (
        "After publishing the adapter, log-probs of sampler and trainer differ by 0.25 nats per "
        "token."
    )
    assert problem.hint == (
        "The adapter may have diverged: lower train.lr and resume from a checkpoint."
    )


def test_nan_log_probs_are_reported_as_different() -> None:
    problem = stale_or_different([float("nan")], [-1.0], [], "bfloat16")
    assert problem is not None
    assert problem.code == "policy.publish_differs"
