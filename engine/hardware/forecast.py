"""Forecast of a step in seconds and bytes: work by the formulas of `flops`, divided by the
machine's peak, times measured inefficiency factors. Pure.

The factors were fitted to measured steps of the starter model (they are in its test). The formulas
describe the amount of work, the factors the quality of the kernels.
"""

from typing import NamedTuple

from engine.hardware.flops import ModelShape, decode_bytes, decode_flops, forward_flops, train_flops


class WorkShape(NamedTuple):
    """Mean lengths in tokens, rollouts per group, groups per step."""

    prompt: float
    completion: float
    group: int
    groups: int

    @property
    def attempts(self) -> int:
        return self.group * self.groups

    @property
    def unique_tokens(self) -> float:
        """Tokens per step that pass through the model: each prompt once per group, and completions
        without their last token, which is only predicted."""
        return self.groups * (self.prompt + self.group * (self.completion - 1))

    @property
    def sampled_tokens(self) -> float:
        return self.attempts * self.completion


class Machine(NamedTuple):
    peak: float
    """Floating-point operations per second, in the precision of the weights."""
    bandwidth: float
    """Memory bandwidth in bytes per second."""


class Factors(NamedTuple):
    """Measured time divided by that of the formula; `…_s` are seconds per layer."""

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
    2: Factors(1.65, 0.52, 4.4, 10.9, 0.023, 4.5, 0.46, 7.0, 0.43, 0.00121),
    4: Factors(1.33, 0.89, 3.7, 3.6, 0.021, 1.9, 1.5, 5.5, 1.33, 0.00062),
}
"""Factors by bytes per weight."""
KEPT = {2: (16, 3), 4: (17, 3)}
"""Number of hidden and intermediate vectors kept per token and layer for the backward pass."""
MOST_ROWS = 64
MOST_PREFILLED = 2048
"""Maximum prompt tokens per forward pass."""
PROGRAM_BYTES = 900_000_000
"""Memory of Python, torch and kernel workspaces."""
COPY_SHARE = 0.25
"""Maximum share of free memory for the sampler's copies of the weights."""
HOLES = 0.7
"""Fragmentation after sampling, relative to the activations of the prefill."""


def update_seconds(
    shape: ModelShape, machine: Machine, work: WorkShape, batch_tokens: int
) -> float:
    """Estimated seconds of an update of this `work` in micro-batches of `batch_tokens`."""
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


def sample_seconds(shape: ModelShape, machine: Machine, work: WorkShape) -> float:
    """Estimated seconds of a step's sampling: one prefill per group, then completions in as few
    batches as fit."""
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


def activation_bytes(
    shape: ModelShape, work: WorkShape, batch_tokens: int, recompute: bool = False
) -> int:
    """Bytes kept for the backward pass of a micro-batch of up to `batch_tokens`. With `recompute`
    (gradient checkpointing): the input of each layer, and all activations of one layer."""
    tokens = min(batch_tokens, work.unique_tokens)
    kept = shape.layers * _kept_numbers(shape)
    if recompute:
        kept = shape.layers * shape.hidden + _kept_numbers(shape)
    return int(tokens * kept * shape.width_bytes)


def copy_bytes(shape: ModelShape, free_bytes: int) -> int:
    """Bytes of the sampler's packed copies of the weights; 0 if they would exceed their share of
    `free_bytes`, so that none are made."""
    size = (shape.body + shape.adapter + shape.head) * shape.width_bytes
    return size if size <= COPY_SHARE * free_bytes else 0


def sampler_bytes(shape: ModelShape, work: WorkShape, context: float, free_bytes: int) -> int:
    """Estimated memory of the sampler in bytes: packed copies of the weights (none if they exceed
    their share of `free_bytes`), the KV cache of sequences of `context` tokens, and fragmentation
    left by the prefill."""
    rows = min(MOST_ROWS, work.attempts)
    prefilled = min(MOST_PREFILLED, work.groups * work.prompt)
    torn = HOLES * prefilled * shape.layers * _kept_numbers(shape) * shape.width_bytes
    cached = rows * context * shape.cached_token_bytes
    return int(copy_bytes(shape, free_bytes) + cached + torn)


def _kept_numbers(shape: ModelShape) -> float:
    hidden, wide = KEPT[shape.width_bytes]
    return hidden * shape.hidden + wide * shape.intermediate


def _pairs(shape: ModelShape, work: WorkShape) -> float:
    prompt, end = int(work.prompt), int(work.prompt + work.completion - 1)
    own = shape.pairs(prompt, end)
    return work.groups * (shape.pairs(0, prompt) + work.group * own)
