"""Seconds and bytes of a step before there is one: work by the formulas of `flops`, over what the
machine does at best, times what is reached of it. Pure.

The factors were fitted to measured steps of the starter model (tests/engine/test_forecast.py has
them): the formulas carry the shape of the work, the factors the quality of the kernels.
"""

from typing import NamedTuple

from engine.flops import ModelShape, decode_bytes, decode_flops, forward_flops, train_flops


class Work(NamedTuple):
    """Mean lengths in tokens, attempts of a group, groups of a step."""

    prompt: float
    completion: float
    group: int
    groups: int

    @property
    def attempts(self) -> int:
        return self.group * self.groups

    @property
    def unique_tokens(self) -> float:
        """Each group's prompt once; the last token of an attempt is only predicted."""
        return self.groups * (self.prompt + self.group * (self.completion - 1))

    @property
    def sampled_tokens(self) -> float:
        return self.attempts * self.completion


class Machine(NamedTuple):
    peak: float
    """Floating-point operations per second, in the precision of the weights."""
    bandwidth: float
    """Bytes per second."""


class Factors(NamedTuple):
    """Measured time over that of the formula; `…_s` are seconds per layer."""

    body: float
    head: float
    attention: float
    activations: float
    update_layer_s: float
    prefill: float
    decode: float
    decode_attention: float
    decode_bytes: float
    decode_layer_s: float


FACTORS = {
    2: Factors(1.41, 0.86, 5.2, 9.7, 0.025, 4.4, 0.0, 9.4, 0.47, 0.00185),
    4: Factors(1.28, 1.28, 1.6, 3.56, 0.020, 1.36, 2.04, 5.05, 1.39, 0.00105),
}
"""By the bytes of a weight."""
KEPT = {2: (16, 3), 4: (17, 3)}
"""Hidden and intermediate vectors that a token keeps for the backward pass, in each layer."""
MOST_ROWS = 64
PROGRAM_BYTES = 700_000_000
"""Python, torch, and the room that kernels work in."""


def update_seconds(shape: ModelShape, machine: Machine, work: Work, batch_tokens: int) -> float:
    """Forward, backward, optimizer and publishing."""
    factors = FACTORS[shape.width_bytes]
    tokens = work.unique_tokens
    batches = max(1, -(-int(tokens) // batch_tokens))
    kept = tokens * shape.layers * _kept_numbers(shape) * shape.width_bytes
    return (
        factors.body * train_flops(shape, tokens, 0, 0) / machine.peak
        + factors.head * train_flops(shape, 0, work.sampled_tokens, 0) / machine.peak
        + factors.attention * train_flops(shape, 0, 0, _pairs(shape, work)) / machine.peak
        + factors.activations * kept / machine.bandwidth
        + factors.update_layer_s * shape.layers * batches
    )


def sample_seconds(shape: ModelShape, machine: Machine, work: Work) -> float:
    """One prefill per group, then the completions in as few batches as fit."""
    factors = FACTORS[shape.width_bytes]
    rows = min(MOST_ROWS, work.attempts)
    steps = work.completion * -(-work.attempts // MOST_ROWS)
    context = rows * (work.prompt + work.completion / 2)
    pairs = work.groups * shape.pairs(0, int(work.prompt))
    read = forward_flops(shape, work.groups * work.prompt, 0, pairs, adapter=True)
    return factors.prefill * read / machine.peak + steps * (
        factors.decode_layer_s * shape.layers
        + factors.decode * decode_flops(shape, rows, 0) / machine.peak
        + factors.decode_attention * shape.pair_flops * context / machine.peak
        + factors.decode_bytes * decode_bytes(shape, context) / machine.bandwidth
    )


def activation_bytes(shape: ModelShape, work: Work, batch_tokens: int) -> int:
    """Kept for the backward pass of the largest micro-batch."""
    tokens = min(batch_tokens, work.unique_tokens)
    return int(tokens * shape.layers * _kept_numbers(shape) * shape.width_bytes)


def _kept_numbers(shape: ModelShape) -> float:
    hidden, wide = KEPT[shape.width_bytes]
    return hidden * shape.hidden + wide * shape.intermediate


def _pairs(shape: ModelShape, work: Work) -> float:
    prompt, end = int(work.prompt), int(work.prompt + work.completion - 1)
    own = shape.pairs(prompt, end)
    return work.groups * (shape.pairs(0, prompt) + work.group * own)
