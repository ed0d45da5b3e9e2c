"""Results of an evaluation, with confidence intervals for every comparison."""

from typing import Literal

from pydantic import Field

from engine.protocol.base import Value
from engine.protocol.records.runs import Interval

EQUAL = 0.5
"""Win rate of equal models, and of a validation against itself."""
Word = Literal["better", "worse", "no difference shown"]


class Comparison(Value):
    """Paired comparison of one contestant with another over the scenarios."""

    against: str
    difference: Interval | None
    """Mean paired difference over the scenarios scored for both, whose number is `count`; None
    without such scenarios."""
    p: float | None
    """Two-sided p-value of the sign-flip test."""
    wins: int
    ties: int
    losses: int
    word: Word
    """`no difference shown` if the interval contains 0."""


class StepComparison(Value):
    """Validation of one step compared with that of an earlier step by the judge."""

    opponent: int
    """The earlier step."""
    scores: dict[str, float]
    """Scenario id → 1 if the judge ranked this step's rollout higher, 0.5 for a tie, 0 if lower;
    the mean over repeated rollouts."""
    unjudged: int = 0
    """Number of scenarios without a valid comparison; excluded from every rate."""


class Standing(Value):
    """Result of one contestant."""

    name: str
    kind: Literal["base", "checkpoint", "provider"]
    variant: str = ""
    """Variant of the system prompt; empty: over all variants."""
    attempts: int
    unscored: int
    """Number of finished trajectories without a reward; excluded from every mean."""
    reward: Interval | None
    """Mean over scenarios; None if none is scored."""
    latency_median_s: float | None
    """Wall-clock time of a rollout, with other rollouts running concurrently."""
    latency_p90_s: float | None
    tokens_mean: float | None
    """Mean sampled tokens per rollout."""
    usd_per_1000: float | None
    """Cost of 1 000 rollouts in US dollars: the provider's price, or local time at
    `evaluate.usd_per_hour`; None if that is not set."""
    versus: Comparison | None = None
    """Comparison with the reference contestant; None for the reference itself."""


class TagStandings(Value):
    """Results on the scenarios of one tag."""

    tag: str
    scenarios: int
    standings: list[Standing]


class InspectLogs(Value):
    """Logs of an evaluation in the format of Inspect, one per model and system prompt."""

    names: list[str]
    """File names, in order of the evaluation's entries."""


class EvaluationResult(Value):
    """Evaluation result, computed from the store; partial while the evaluation is running."""

    done: int
    """Number of finished rollouts."""
    total: int
    scenarios: int
    attempts: int
    """Rollouts of each contestant and variant per scenario."""
    seed: int
    judged: bool
    """Whether a judge contributes to the rewards."""
    precision: str = ""
    """Precision of the local models; empty before the first is loaded."""
    standings: list[Standing]
    """One per contestant, over all variants; the first is the reference."""
    variants: list[Standing] = Field(default_factory=list)
    """One per contestant and variant, if there are variants."""
    tags: list[TagStandings] = Field(default_factory=list)
    """By the scenarios' `tag` or `tags`; those with most scenarios first."""

    @property
    def scored(self) -> bool:
        """Whether any contestant has a scored trajectory."""
        return any(standing.reward for standing in self.standings)
