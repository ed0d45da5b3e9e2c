"""Utilization of the machine: needed and executed work against time.

`TrainEffort` belongs to one batch, `SampleEffort` to all sampling since the last call. Shares of
the peaks of `engine.policy.torch.machine_limits`; see `engine.hardware.flops` for goodput and
hardware share.
"""

from collections.abc import Iterable, Sequence

from engine.hardware.flops import (
    ModelShape,
    decode_bytes,
    decode_flops,
    forward_flops,
    least_seconds,
    train_flops,
)
from engine.policy.prefix import shared
from engine.policy.torch.machine_limits import Limits
from engine.policy.torch.training.prefix_tree import TreePlan


class TrainEffort:
    """Utilisation of one training batch; `sequences` are the visible tokens of all its items."""

    def __init__(self, shape: ModelShape, sequences: Iterable[list[int]]) -> None:
        self._shape = shape
        self._seen = self._unique = self._forwarded = self._scored = 0
        self._pairs = self._done_flops = self._extra_flops = 0.0
        before: list[int] = []
        for tokens in sorted(sequences):
            common = shared(before, tokens)
            self._seen += len(tokens)
            self._unique += len(tokens) - common
            self._pairs += shape.pairs(common, len(tokens))
            before = tokens

    def ran(self, plan: TreePlan, places: int, predictions: int, reference: bool) -> None:
        """Record a micro-batch computed as `plan`: number of tokens whose logits were needed
        (`places`; shared tokens count once), number of log-probs (`predictions`; they count in
        each sequence), and whether the base model computed them too (`reference`)."""
        shape, tokens = self._shape, plan.tokens_1S.shape[1]
        pairs = sum(plan.pairs(window) for window in shape.windows) / shape.layers
        self._forwarded += tokens
        self._scored += places
        self._done_flops += train_flops(shape, tokens, predictions, pairs)
        self._done_flops += 0.5 * shape.pair_flops * pairs  # attention runs forward once more
        if reference:
            self._done_flops += forward_flops(shape, tokens, predictions, pairs)
            self._extra_flops += forward_flops(shape, 0, places, 0)

    def metrics(self, limits: Limits, seconds: float) -> dict[str, float]:
        needed = train_flops(self._shape, self._unique, self._scored, self._pairs)
        if self._extra_flops:
            needed += forward_flops(self._shape, self._unique, 0, self._pairs) + self._extra_flops
        return {
            "tokens/forwarded": float(self._forwarded),
            "sharing/train": self._forwarded / self._seen,
            "goodput/train": needed / (seconds * limits.peak),
            "hardware/train": self._done_flops / (seconds * limits.peak),
        }


class SampleEffort:
    """Utilisation of sampling, one forward pass after another; `take` resets it."""

    def __init__(self, shape: ModelShape) -> None:
        self._shape = shape
        self.clear()

    def clear(self) -> None:
        self._steps = self._rows = self._computed = self._reused = 0
        self._seconds = self._needed_s = self._done_s = 0.0

    def joined(self, computed: int, reused: int) -> None:
        """Record a prompt by its numbers of tokens to compute and of cached (`reused`) tokens."""
        self._computed += computed
        self._reused += reused

    def ran(
        self, pieces: Sequence[tuple[int, int]], padded_keys: int, limits: Limits, seconds: float
    ) -> None:
        """Record one forward pass that took `seconds`. `pieces`: range (start, end) of the computed
        tokens of each row; `padded_keys`: keys that rows with one token attended to, padding
        included; `limits`: peak rates of the machine."""
        shape, rows = self._shape, len(pieces)
        tokens = sum(end - start for start, end in pieces)
        pairs = [shape.pairs(start, end) for start, end in pieces]
        contexts = sum(min(end, seen) for (_, end), seen in zip(pieces, pairs, strict=True))
        needed = decode_flops(shape, rows, sum(pairs)) + forward_flops(shape, tokens - rows, 0, 0)
        longer = [(start, end) for start, end in pieces if end - start > 1]
        done_pairs = padded_keys + sum((end - start) * end for start, end in longer)
        done = forward_flops(shape, tokens, rows, done_pairs, adapter=True)
        done_contexts = padded_keys + sum(end for _, end in longer)
        self._needed_s += least_seconds(needed, decode_bytes(shape, contexts), *limits)
        self._done_s += least_seconds(done, decode_bytes(shape, done_contexts), *limits)
        self._seconds += seconds
        self._steps += 1
        self._rows += rows

    def take(self) -> dict[str, float]:
        """Utilisation metrics since the last call; empty if nothing was sampled."""
        if not self._steps:
            return {}
        prompts = self._computed + self._reused
        found = {
            "goodput/sample": self._needed_s / self._seconds,
            "hardware/sample": self._done_s / self._seconds,
            "rows/sample": self._rows / self._steps,
            "time_s/sampling": self._seconds,
        }
        if prompts:
            found["sharing/sample"] = self._computed / prompts
        self.clear()
        return found
