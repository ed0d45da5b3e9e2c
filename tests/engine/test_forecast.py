"""Forecasts against what was measured: SmolLM2-135M, rank 16, two cores with AVX512-BF16.

`python -m engine bench --json` prints new figures of these shapes on any machine.
"""

import pytest

from engine.flops import ModelShape
from engine.forecast import (
    PROGRAM_BYTES,
    Machine,
    Work,
    activation_bytes,
    sample_seconds,
    update_seconds,
)

BATCH_TOKENS = 2048
MEASURED = [
    # bytes of a weight, (prompt, completion, group, groups), GFLOP/s, GB/s, update s, sample s, GB
    (2, (256, 64, 8, 2), 818, 51, 2.76, 4.503, 2.41),
    (2, (1024, 64, 8, 1), 846, 51, 3.651, 5.73, 2.43),
    (2, (128, 32, 8, 4), 779, 40, 2.693, 2.677, 2.46),
    (2, (64, 128, 8, 2), 817, 47, 4.059, 7.968, 2.93),
    (2, (512, 16, 16, 1), 835, 50, 1.717, 1.693, 1.75),
    (2, (32, 6, 8, 8), 831, 51, 1.41, 0.665, 1.55),
    (4, (256, 64, 8, 2), 192, 51, 6.522, 7.606, 4.02),
    (4, (1024, 64, 8, 1), 183, 48, 7.716, 8.245, 4.43),
    (4, (128, 32, 8, 4), 188, 50, 6.721, 5.789, 4.14),
]


def shape_of(width: int) -> ModelShape:
    return ModelShape(
        106_168_320, 4_884_480, 576, 49_152, 9, 3, 64, (None,) * 30, width, intermediate=1536
    )


@pytest.mark.parametrize(
    ("width", "work", "peak", "bandwidth", "update", "sample", "size"), MEASURED
)
def test_forecasts_are_within_a_fifth(width, work, peak, bandwidth, update, sample, size):
    shape, machine, work = shape_of(width), Machine(peak * 1e9, bandwidth * 1e9), Work(*work)
    assert update_seconds(shape, machine, work, BATCH_TOKENS) == pytest.approx(update, rel=0.2)
    assert sample_seconds(shape, machine, work) == pytest.approx(sample, rel=0.2)
    weights = (shape.body + shape.head) * width + 16 * shape.adapter
    cached = work.attempts * (work.prompt + work.completion) * shape.cached_token_bytes
    kept = activation_bytes(shape, work, BATCH_TOKENS)
    assert PROGRAM_BYTES + weights + cached + kept == pytest.approx(size * 1e9, rel=0.2)


def test_more_work_takes_longer():
    shape, machine = shape_of(2), Machine(8e11, 5e10)
    small = Work(128, 16, 4, 2)
    for more in (
        small._replace(prompt=256),
        small._replace(completion=32),
        small._replace(group=8),
        small._replace(groups=4),
    ):
        for seconds in (
            lambda work: update_seconds(shape, machine, work, BATCH_TOKENS),
            lambda work: sample_seconds(shape, machine, work),
            lambda work: activation_bytes(shape, work, BATCH_TOKENS),
        ):
            assert seconds(more) > seconds(small)
