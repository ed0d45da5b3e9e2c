"""Forecasts against measurements: SmolLM2-135M, rank 16, two cores with AVX512-BF16.

`atelier bench --json` prints new figures of these shapes on any machine.
"""

from dataclasses import replace

import pytest

from engine.hardware.flops import ModelShape
from engine.hardware.forecast import (
    FACTORS,
    PROGRAM_BYTES,
    Factors,
    Machine,
    WorkShape,
    activation_bytes,
    copy_bytes,
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
def test_forecasts_are_within_20_percent_of_measurements(
    width, work, peak, bandwidth, update, sample, size
):
    shape, machine, work = shape_of(width), Machine(peak * 1e9, bandwidth * 1e9), WorkShape(*work)
    assert update_seconds(shape, machine, work, BATCH_TOKENS) == pytest.approx(update, rel=0.2)
    assert sample_seconds(shape, machine, work) == pytest.approx(sample, rel=0.2)
    weights = (shape.body + shape.head) * width + 16 * shape.adapter
    sampler = sampler_bytes(shape, work, work.prompt + work.completion, 24_000_000_000)
    activations = activation_bytes(shape, work, BATCH_TOKENS)
    assert PROGRAM_BYTES + weights + sampler + activations == pytest.approx(size * 1e9, rel=0.2)


def test_forecasts_grow_with_every_dimension_of_the_work():
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


TINY = ModelShape(
    body=1000,
    adapter=100,
    hidden=8,
    vocabulary=50,
    query_heads=4,
    key_heads=2,
    head_size=2,
    windows=(None, None),
    width_bytes=4,
    intermediate=20,
)
"""Two layers: a token keeps 17 · 8 + 3 · 20 = 196 numbers in each, and caches 2 · 2 · 2 · 2 · 4 =
64 bytes; a pair takes 4 · 2 · 4 · 2 = 64 operations; the head has 50 · 8 = 400 weights."""
WORK = WorkShape(prompt=10, completion=5, group=4, groups=3)
NO_FACTORS = Factors(*[0.0] * 10)


def test_work_shape_counts_tokens_of_a_step():
    assert WORK.attempts == 12
    assert WORK.unique_tokens == 3 * (10 + 4 * 4)
    assert WORK.sampled_tokens == 12 * 5


@pytest.mark.parametrize(
    ("term", "seconds"),
    [
        ("body", 78 * (4 * 1000 + 6 * 100) / 1e3),
        ("head", 60 * 4 * 400 / 1e3),
        # a prompt has 1 + … + 10 pairs; the tokens after it see 11, 12, 13 and 14
        ("attention", 3 * 64 * 3 * (55 + 4 * (11 + 12 + 13 + 14)) / 1e3),
        ("activations", 78 * 2 * 196 * 4 / 1e2),
        ("update_layer_s", 2 * 3),  # 78 tokens in batches of 30
    ],
)
def test_terms_of_update_seconds(monkeypatch, term, seconds):
    monkeypatch.setitem(FACTORS, 4, NO_FACTORS._replace(**{term: 1.0}))
    assert update_seconds(TINY, Machine(1e3, 1e2), WORK, 30) == pytest.approx(seconds)


@pytest.mark.parametrize(("batch_tokens", "batches"), [(77, 2), (78, 1), (79, 1), (10**6, 1)])
def test_tokens_are_split_into_whole_batches(monkeypatch, batch_tokens, batches):
    monkeypatch.setitem(FACTORS, 4, NO_FACTORS._replace(update_layer_s=1.0))
    assert update_seconds(TINY, Machine(1, 1), WORK, batch_tokens) == 2 * batches


@pytest.mark.parametrize(
    ("term", "seconds"),
    [
        ("prefill", 3 * (10 * 2 * (1000 + 100) + 64 * 55) / 1e3),
        ("decode", 5 * 12 * 2 * (1000 + 400) / 1e3),
        ("decode_attention", 5 * 64 * 12 * (10 + 2.5) / 1e3),
        ("decode_bytes", 5 * (4 * (1000 + 400) + 64 * 12 * 12.5) / 1e2),
        ("decode_layer_s", 5 * 2),
    ],
)
def test_terms_of_sample_seconds(monkeypatch, term, seconds):
    monkeypatch.setitem(FACTORS, 4, NO_FACTORS._replace(**{term: 1.0}))
    assert sample_seconds(TINY, Machine(1e3, 1e2), WORK) == pytest.approx(seconds)


@pytest.mark.parametrize(("groups", "batches", "rows"), [(16, 1, 64), (17, 2, 64), (33, 3, 64)])
def test_rollouts_beyond_the_rows_are_sampled_in_batches(monkeypatch, groups, batches, rows):
    work = WORK._replace(groups=groups)
    monkeypatch.setitem(FACTORS, 4, NO_FACTORS._replace(decode_layer_s=1.0))
    assert sample_seconds(TINY, Machine(1, 1), work) == 5 * 2 * batches
    monkeypatch.setitem(FACTORS, 4, NO_FACTORS._replace(decode=1.0))
    assert sample_seconds(TINY, Machine(1, 1), work) == 5 * batches * rows * 2 * 1400


def test_activation_bytes_of_a_micro_batch():
    assert activation_bytes(TINY, WORK, 30) == 30 * 2 * 196 * 4
    assert activation_bytes(TINY, WORK, 1000) == 78 * 2 * 196 * 4
    assert activation_bytes(TINY, WORK, 30, recompute=True) == 30 * (2 * 8 + 196) * 4


def test_copies_take_at_most_a_quarter_of_free_memory():
    size = (1000 + 100 + 400) * 4
    assert copy_bytes(TINY, 4 * size) == size
    assert copy_bytes(TINY, 4 * size - 1) == 0


@pytest.mark.parametrize(
    ("work", "rows", "prefilled"),
    [(WORK, 12, 30), (WORK._replace(groups=20), 64, 200), (WORK._replace(prompt=700), 12, 2048)],
)
def test_sampler_bytes_match_hand_computed_values(work, rows, prefilled):
    prefill_bytes = 0.7 * prefilled * 2 * 196 * 4
    assert sampler_bytes(TINY, work, 15, 0) == int(rows * 15 * 64 + prefill_bytes)
    assert sampler_bytes(TINY, work, 15, 10**9) == int(rows * 15 * 64 + prefill_bytes + 1500 * 4)


def test_half_precision_keeps_different_vectors():
    half = replace(TINY, width_bytes=2)
    assert activation_bytes(half, WORK, 30) == 30 * 2 * (16 * 8 + 3 * 20) * 2
