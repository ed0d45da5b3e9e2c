"""Forecasts against what was measured: SmolLM2-135M, rank 16, two cores with AVX512-BF16.

`atelier bench --json` prints new figures of these shapes on any machine.
"""

import pytest

from engine.hardware.flops import ModelShape
from engine.hardware.forecast import (
    PROGRAM_BYTES,
    Machine,
    WorkShape,
    activation_bytes,
    sample_seconds,
    sampler_bytes,
    update_seconds,
)

BATCH_TOKENS = 2048
MEASURED = [
    # bytes of a weight, (prompt, completion, group, groups), GFLOP/s, GB/s, update s, sample s, GB
    (2, (256, 64, 8, 2), 870, 50, 2.675, 3.34, 3.23),
    (2, (1024, 64, 8, 1), 879, 50, 3.46, 4.29, 3.47),
    (2, (128, 32, 8, 4), 869, 50, 2.716, 2.294, 3.38),
    (2, (64, 128, 8, 2), 828, 50, 3.892, 5.585, 3.56),
    (2, (512, 16, 16, 1), 867, 50, 1.744, 1.361, 2.98),
    (2, (32, 6, 8, 8), 841, 50, 1.393, 0.602, 2.1),
    (4, (256, 64, 8, 2), 427, 50, 3.887, 4.151, 5.37),
    (4, (1024, 64, 8, 1), 433, 50, 5.076, 4.921, 6.23),
    (4, (128, 32, 8, 4), 415, 50, 3.478, 2.91, 5.51),
]


def shape_of(width: int) -> ModelShape:
    return ModelShape(
        106_168_320, 4_884_480, 576, 49_152, 9, 3, 64, (None,) * 30, width, intermediate=1536
    )


@pytest.mark.parametrize(
    ("width", "work", "peak", "bandwidth", "update", "sample", "size"), MEASURED
)
def test_forecasts_are_within_a_fifth(width, work, peak, bandwidth, update, sample, size):
    shape, machine, work = shape_of(width), Machine(peak * 1e9, bandwidth * 1e9), WorkShape(*work)
    assert update_seconds(shape, machine, work, BATCH_TOKENS) == pytest.approx(update, rel=0.2)
    assert sample_seconds(shape, machine, work) == pytest.approx(sample, rel=0.2)
    weights = (shape.body + shape.head) * width + 16 * shape.adapter
    sampler = sampler_bytes(shape, work, work.prompt + work.completion, 24_000_000_000)
    kept = activation_bytes(shape, work, BATCH_TOKENS)
    assert PROGRAM_BYTES + weights + sampler + kept == pytest.approx(size * 1e9, rel=0.2)


def test_more_work_takes_longer():
    shape, machine = shape_of(2), Machine(8e11, 5e10)
    small = WorkShape(128, 16, 4, 2)
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
