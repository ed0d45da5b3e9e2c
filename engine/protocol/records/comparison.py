"""What came out of an evaluation, with intervals wherever something is said to be better."""

from typing import Literal

from pydantic import Field

from engine.protocol.base import Value
from engine.protocol.records.runs import Interval

Word = Literal["better", "worse", "no difference shown"]


class Comparison(Value):
    """One contestant against another, scenario by scenario."""

    against: str
    difference: Interval | None
    """Mean of the differences over the scenarios that are scored for both; `count` says how many.
    None where there is none."""
    p: float | None
    """Of the sign-flip test, two-sided: how often a difference this large comes by chance."""
    wins: int
    ties: int
    losses: int
    word: Word
    """`no difference shown` where the interval holds 0."""


class Standing(Value):
    """How one contestant did."""

    name: str
    kind: Literal["base", "checkpoint", "provider"]
    variant: str = ""
    """Of the system prompt; empty: over all of them."""
    attempts: int
    unscored: int
    """Of the attempts that have ended; they stay out of every mean."""
    reward: Interval | None
    """Mean over scenarios; None where none is scored."""
    latency_median_s: float | None
    """Wall clock of an attempt, beside the others that ran at the same time."""
    latency_p90_s: float | None
    tokens_mean: float | None
    """Sampled by an attempt."""
    usd_per_1000: float | None
    """Dollars for 1 000 attempts: a provider's bill, or the time on this machine at
    `evaluate.usd_per_hour`; None where nobody has said what an hour costs."""
    versus: Comparison | None = None
    """None for the one that the others are compared with."""


class TagStandings(Value):
    """The scenarios of one tag by themselves."""

    tag: str
    scenarios: int
    standings: list[Standing]


class EvaluationResult(Value):
    """Computed from the store; also while the evaluation goes on, from what there is."""

    done: int
    """Attempts that have ended."""
    total: int
    scenarios: int
    attempts: int
    """Of each contestant, under each variant, at each scenario."""
    seed: int
    judged: bool
    """Whether a judge has part in the rewards."""
    precision: str = ""
    """Precision in which the local models were computed; empty before the first is loaded."""
    standings: list[Standing]
    """One a contestant, the first being compared with; over all variants."""
    variants: list[Standing] = Field(default_factory=list)
    """One a contestant and variant, where there are variants."""
    tags: list[TagStandings] = Field(default_factory=list)
    """By the scenarios' `tag` or `tags`, those with most scenarios first."""

    @property
    def scored(self) -> bool:
        """Whether anything is known at all."""
        return any(standing.reward for standing in self.standings)
