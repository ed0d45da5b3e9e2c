"""FLOP and byte counts against hand-computed numbers."""

import pytest

from engine.hardware.flops import (
    ModelShape,
    decode_bytes,
    decode_flops,
    forward_flops,
    least_seconds,
    train_flops,
)

SHAPE = ModelShape(
    body=1000,
    adapter=100,
    hidden=8,
    vocabulary=50,
    query_heads=4,
    key_heads=2,
    head_size=2,
    windows=(None, None, 3),
    width_bytes=2,
)


def test_training_and_forward_flops_match_hand_computed_values() -> None:
    # pair: 4 · 3 layers · 4 heads · 2 = 96; head: 50 · 8 = 400
    assert train_flops(SHAPE, 10, 0, 0) == (4 * 1000 + 6 * 100) * 10
    assert train_flops(SHAPE, 0, 5, 0) == 4 * 400 * 5
    assert train_flops(SHAPE, 0, 0, 7) == 3 * 96 * 7
    assert train_flops(SHAPE, 10, 5, 7) == 46_000 + 8_000 + 2_016
    assert forward_flops(SHAPE, 10, 5, 7) == 20_000 + 4_000 + 672
    assert forward_flops(SHAPE, 10, 5, 7, adapter=True) == 22_000 + 4_000 + 672


def test_smollm2_counts_match_hand_computed_values() -> None:
    """135 M weights: 106.2 M in 30 layers, 28.3 M in the tied embedding; rank 16."""
    shape = ModelShape(106_168_320, 4_884_480, 576, 49_152, 9, 3, 64, (None,) * 30)
    assert shape.head == 28_311_552
    assert shape.cached_token_bytes == 2 * 30 * 3 * 64 * 2
    one_token = 4 * 106_168_320 + 6 * 4_884_480
    assert train_flops(shape, 1000, 0, 0) == 1000 * one_token
    assert decode_bytes(shape, 0) == 2 * (106_168_320 + 28_311_552)


def test_attention_pairs_are_causal_and_limited_by_the_window() -> None:
    assert SHAPE.pairs(0, 4) == (10 + 10 + (1 + 2 + 3 + 3)) / 3
    assert SHAPE.pairs(2, 4) == (3 + 4 + 3 + 4 + 3 + 3) / 3
    assert SHAPE.pairs(5, 5) == 0
    total = SHAPE.pairs(0, 9)
    assert total == pytest.approx(SHAPE.pairs(0, 6) + SHAPE.pairs(6, 9))


def test_decoding_is_bound_by_memory_or_by_compute() -> None:
    assert decode_flops(SHAPE, 2, 30) == 2 * (1000 + 400) * 2 + 96 * 30
    assert decode_bytes(SHAPE, 30) == 2 * 1400 + (2 * 3 * 2 * 2 * 2) * 30
    assert least_seconds(100, 10, peak=10, bandwidth=10) == 10
    assert least_seconds(100, 400, peak=10, bandwidth=10) == 40
