"""What is said of learning from demonstrations: in the warm-up of a run, and in SFT runs."""

from typing import Literal

from engine.protocol.events.base import BaseEvent


class WarmupFinished(BaseEvent):
    kind: Literal["warmup.finished"] = "warmup.finished"
    examples: int
    losses: list[float]
    """Mean token loss of each epoch."""
    seconds: float


class LossMeasured(BaseEvent):
    """What an SFT run's weights make of the held-out demonstrations."""

    kind: Literal["loss.measured"] = "loss.measured"
    step: int
    loss: float
    """Mean negative log-probability of a trained token, in nats."""
    tokens: int
    """How many those were."""
    examples: int
    seconds: float
