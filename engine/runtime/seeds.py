"""Random seeds derived from the run's seed and their purpose; no generator state is stored."""

import hashlib


def derive(seed: int, purpose: str, *place: int | str) -> int:
    """63-bit seed derived from a run's seed for one purpose at one place (step, group, index …)."""
    text = ":".join([str(seed), purpose, *map(str, place)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
