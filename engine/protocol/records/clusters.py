"""Measured behaviour of a cluster, as stored with a run."""

from typing import Literal

from engine.protocol.base import Value


class ClusterProfile(Value):
    """Behaviour of a cluster with gradients, snapshots and seeds, as calibration measured it."""

    name: str
    """Name of the cluster in the list of this machine."""
    client: str
    """Name and version of the SDK."""
    model: str
    """Name of the base model at the cluster."""
    sequences: Literal["sum", "mean"]
    """Reduction of the loss over the sequences of an optimizer step."""
    tokens: Literal["sum", "mean"]
    """Reduction over the tokens of a sequence; `mean` divides by all positions, trained or not."""
    clips: bool
    """Whether gradients are clipped at the norm that a step asks for."""
    pinned: bool
    """Whether an older snapshot can be sampled without changing the weights in training."""
    repeats: bool
    """Whether equal seeds give equal samples."""
    alpha: float
    """Scaling numerator α of the adapter."""
    logprob_gap: float
    """Mean |Δ log-prob| in nats between sampler and trainer on a fixed text."""
    noise: float = 0.0
    """Mean |Δ log-prob| in nats between two forward passes of the trainer on that text."""

    @property
    def words(self) -> str:
        """Description for Setup and Run, the deviations from this machine's trainer last."""
        parts = [
            f"{self.sequences} over sequences",
            f"{self.tokens} over tokens",
            "clips gradients" if self.clips else "ignores clipping",
            "snapshots pinned" if self.pinned else "snapshots not pinned",
            "seeds repeat" if self.repeats else "seeds do not repeat",
            f"α {self.alpha:g}",
        ]
        return " · ".join(parts)
