"""Results of a benchmark as one object."""

from engine.bench.compare import Comparison
from engine.protocol.base import Value


class Growth(Value):
    """Seconds while one side of the work grows (P/C/G/Q)."""

    name: str
    shapes: list[str]
    sample_s: list[float]
    update_s: list[float]


class MultiTurn(Value):
    """Comparison of one prefix tree with one row per turn, each row with its whole history and
    nothing shared."""

    turns: int
    prompt: int
    answer: int
    observation: int
    group: int
    tree_s: float
    rows_s: float
    ratio: float


class Report(Value):
    model: str
    device: str
    dtype: str
    repeats: int
    replay: dict[str, Comparison]
    """Results by shape, P/C/G/Q."""
    live: dict[str, Comparison]
    growth: list[Growth]
    multi_turn: MultiTurn | None
