"""Every random choice derives from the run's seed and what it is for: little state to lose."""

import hashlib


def derive(seed: int, purpose: str, *place: int | str) -> int:
    """A 63-bit seed for one purpose at one place (step, group, attempt …)."""
    text = ":".join([str(seed), purpose, *map(str, place)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
