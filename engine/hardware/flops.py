"""Operations and bytes of a training step, from shapes and counts. Pure.

`needed` is the minimum work of a step: shared prefixes once, no padding, the head only on scored
tokens. Divided by the machine's peak it gives the shortest possible time, and that divided by the
measured time is the *goodput*. The executed work by the same formula gives the *hardware* share:
padding and repeated prefixes raise it and lower the goodput.
"""

from collections import Counter
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class ModelShape:
    """Dimensions of a model. A multiply-add counts as two operations."""

    body: int
    """N_b: weights of the linear layers between embedding and head."""
    adapter: int
    """N_l: weights of the LoRA matrices."""
    hidden: int
    vocabulary: int
    query_heads: int
    key_heads: int
    head_size: int
    windows: tuple[int | None, ...]
    """Attention window of each layer in tokens, the current one included; None for full."""
    width_bytes: int = 2
    """Bytes of one weight, and of one cached key or value."""
    intermediate: int = 0
    """Width of the feed-forward layers; only memory depends on it."""
    idle_adapter: int = 0
    """Weights of the LoRA matrices of experts that do not compute a token."""

    @property
    def active_adapter(self) -> int:
        """N_a: weights of the LoRA matrices that compute a token."""
        return self.adapter - self.idle_adapter

    @property
    def layers(self) -> int:
        return len(self.windows)

    @cached_property
    def _counted_windows(self) -> Counter[int | None]:
        return Counter(self.windows)

    @property
    def pair_flops(self) -> int:
        """FLOPs of attention per (query, key) pair in all layers: 4 L n_q d_h, for L layers with
        n_q query heads of size d_h."""
        return 4 * self.layers * self.query_heads * self.head_size

    @property
    def head(self) -> int:
        """Number of weights of the language-model head: vocabulary V · hidden size h."""
        return self.vocabulary * self.hidden

    @property
    def cached_token_bytes(self) -> int:
        """Bytes of the keys and values of one token in all layers."""
        return 2 * self.layers * self.key_heads * self.head_size * self.width_bytes

    def pairs(self, start: int, end: int) -> float:
        """Number of (query, key) pairs of the tokens from `start` up to, not including, `end`; mean
        over layers, whose sliding windows may differ."""
        reach = ((_seen(end, w) - _seen(start, w)) * n for w, n in self._counted_windows.items())
        return sum(reach) / self.layers


def _seen(tokens: int, window: int | None) -> int:
    """Number of causal pairs of the first `tokens` tokens, limited by the window."""
    if window is None or tokens <= window:
        return tokens * (tokens + 1) // 2
    return window * (window + 1) // 2 + (tokens - window) * window


def train_flops(
    shape: ModelShape, unique_tokens: float, scored_tokens: float, pairs: float
) -> float:
    """FLOPs of a LoRA step: (4 N_b + 6 N_a) U + 4 V h M + 3 · 4 L n_q d_h · pairs, for N_b weights
    of the base and N_a of the adapter, U `unique_tokens` and M `scored_tokens`.

    Base weights need no gradient of their own, so they cost two passes (x Wᵀ and the gradient of
    x). So does the head, whose gradient is computed with its values. Attention costs twice as much
    backward as forward."""
    body = (4 * shape.body + 6 * shape.active_adapter) * unique_tokens
    return body + 4 * shape.head * scored_tokens + 3 * shape.pair_flops * pairs


def forward_flops(
    shape: ModelShape, tokens: float, scored_tokens: float, pairs: float, adapter: bool = False
) -> float:
    """FLOPs of a forward pass over U `tokens`, M of them scored: 2 N_b U + 2 V h M + 4 L n_q d_h ·
    pairs; `adapter` adds 2 N_a U. Symbols as in `train_flops`."""
    body = 2 * (shape.body + (shape.active_adapter if adapter else 0)) * tokens
    return body + 2 * shape.head * scored_tokens + shape.pair_flops * pairs


def decode_flops(shape: ModelShape, rows: int, context_tokens: float) -> float:
    """FLOPs to sample one more token in each of `rows` sequences of `context_tokens` in total."""
    return forward_flops(shape, rows, rows, context_tokens)


def decode_bytes(shape: ModelShape, context_tokens: float) -> float:
    """Bytes that one decode step reads: all weights, and a KV cache of `context_tokens`."""
    weights = (shape.body + shape.head) * shape.width_bytes
    return weights + shape.cached_token_bytes * context_tokens


def least_seconds(flops: float, read_bytes: float, peak: float, bandwidth: float) -> float:
    """Minimum seconds by the roofline model: computing (at `peak` FLOP/s) and reading (at
    `bandwidth` bytes/s) overlap."""
    return max(flops / peak, read_bytes / bandwidth)
