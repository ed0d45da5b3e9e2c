"""Events of supervised fine-tuning, in the warm-up of a run and in SFT runs."""

from typing import Literal

from engine.protocol.base import BaseEvent


class WarmupFinished(BaseEvent):
    kind: Literal["warmup.finished"] = "warmup.finished"
    examples: int
    losses: list[float]
    """Mean token loss of each epoch."""
    seconds: float


class LossMeasured(BaseEvent):
    """The loss on the held-out demonstrations was measured; SFT runs only."""

    kind: Literal["loss.measured"] = "loss.measured"
    step: int
    loss: float
    """Mean negative log-probability of a trained token, in nats."""
    tokens: int
    """Number of trained tokens."""
    examples: int
    seconds: float
