"""Exponential backoff: doubles up to a limit, without end."""

from dataclasses import dataclass

FIRST_S = 0.5
LAST_S = 5.0


@dataclass
class Backoff:
    """Delays of 0.5, 1, 2, 4, 5, 5 … seconds."""

    failures: int = 0

    def failed(self) -> float:
        """Count one more failure and return the delay in seconds before the next attempt; it
        doubles with each failure, up to a limit."""
        self.failures += 1
        return min(LAST_S, FIRST_S * 2.0 ** min(self.failures - 1, 10))

    def worked(self) -> None:
        """Reset the delay after a success."""
        self.failures = 0
