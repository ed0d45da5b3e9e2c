"""Review queue of a run: groups to label, those first whose label teaches most."""

from typing import Annotated, Literal

from pydantic import Field

from engine.protocol.base import Request, Value
from engine.protocol.records.runs import Split

ReviewReason = Literal[
    "unscored", "judge_passes", "judge_models", "judge_and_rules", "spread", "near_tie", "advantage"
]

REASONS: dict[ReviewReason, str] = {
    "unscored": "No reward yet",
    "judge_passes": "Judge passes disagree",
    "judge_models": "Judge models disagree",
    "judge_and_rules": "Judge and rules disagree",
    "spread": "Judge is uncertain",
    "near_tie": "Near-ties",
    "advantage": "Large advantages",
}
"""Short description of each reason why a label of a group teaches much."""


class ReviewQuery(Request):
    """Query for the first groups of a review queue."""

    reasons: tuple[ReviewReason, ...] = ()
    """Reasons that count; empty: all of them."""
    split: Split = "train"
    annotator: Annotated[str, Field(max_length=200)] = ""
    """Name of a person: groups that only others have labelled, so that agreement among annotators
    can be measured. Empty: groups that nobody has labelled."""
    limit: Annotated[int, Field(ge=1, le=500)] = 20


class ReviewItem(Value):
    """Group of a review queue."""

    split: Split
    step: int
    group: int
    title: str
    value: float
    """How much a label teaches, in [0, 1]."""
    reason: ReviewReason
    """Reason that contributes most to `value`."""
    words: str
    """That reason in one sentence. It reveals no trajectory's score or rank."""
    strengths: dict[ReviewReason, float] = Field(default_factory=dict)
    """Strength of each reason in [0, 1], without those that do not hold."""


class ReviewQueue(Value):
    """First groups of a review queue, most instructive first."""

    total: int
    """Number of groups with a reason. Groups of identical trajectories count, unless they were
    among the first and therefore left out."""
    items: list[ReviewItem]
