"""Soft overlong punishment: a penalty for completions near their token limit."""

from collections.abc import Iterable

PART = "overlong"
"""Name of the reward part, weighted by `[reward]` like any other."""


def overlong(lengths: Iterable[int], max_tokens: int, share: float) -> float:
    """Penalty in [−1, 0] for the longest of a rollout's completions, whose `lengths` are in tokens
    (DAPO, 2503.14476, eq. 13): 0 up to max_tokens − cache, then linear to −1 at max_tokens; cache =
    share · max_tokens."""
    longest, cache = max(lengths, default=0), share * max_tokens
    return -min(1.0, max(0.0, longest - (max_tokens - cache)) / cache)
