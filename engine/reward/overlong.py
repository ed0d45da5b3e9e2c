"""Soft overlong punishment: an answer learns to end before its limit cuts it. Pure."""

from collections.abc import Iterable

PART = "overlong"
"""The reward part's name; the weights of `[reward]` apply to it as to any other."""


def overlong(lengths: Iterable[int], max_tokens: int, share: float) -> float:
    """In [−1, 0], for the longest completion of an attempt (DAPO, 2503.14476, eq. 13): 0 up to
    max_tokens − cache, then falling evenly to −1 at max_tokens; cache = share · max_tokens."""
    longest, cache = max(lengths, default=0), share * max_tokens
    return -min(1.0, max(0.0, longest - (max_tokens - cache)) / cache)
