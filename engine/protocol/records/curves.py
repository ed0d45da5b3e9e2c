"""Per-scenario reward statistics over a run, and queries for pages of them."""

from typing import Literal

from pydantic import Field

from engine.protocol.base import Request, Value
from engine.protocol.records.runs import Split


class ScenarioCurve(Value):
    """Reward statistics of one scenario in a run. A visit is one group of its trajectories."""

    scenario_id: str
    title: str
    visits: int
    attempts: int
    unscored: int
    mean: float | None
    """Mean reward of its scored trajectories; here and below, None if none is scored."""
    early: float | None
    """Solve rate in the first third of the visits (at least one)."""
    late: float | None
    """Solve rate in the last third of the visits."""
    gain: float | None
    """late − early."""
    lost: float | None
    """Solve rate of the best third of the visits − late: regression from its peak."""
    spread: float | None
    """Mean standard deviation of the rewards within its groups."""
    difficulty: float | None
    """1 − smoothed solve rate of the latest visits, as used by the curriculum `hard`."""
    last_step: int
    curve: list[tuple[float, float]] = Field(default_factory=list)
    """(step, mean reward) of its visits, oldest first; averaged over neighbours if there are very
    many."""


class CurveQuery(Request):
    """Query for one page of scenario statistics; sorted in SQL, unknown values last."""

    split: Split = "train"
    search: str = ""
    """Substring of the scenario id."""
    sort: Literal[
        "scenario",
        "visits",
        "mean",
        "early",
        "late",
        "gain",
        "lost",
        "spread",
        "difficulty",
        "last_step",
    ] = "difficulty"
    descending: bool = True
    offset: int = Field(default=0, ge=0)
    limit: int = Field(default=100, ge=1, le=1000)


class CurvePage(Value):
    total: int
    """Number of matching scenarios over all pages."""
    solved_at: float
    """Reward from which a trajectory counts as solved: halfway between the lowest and the highest
    reward of the run, taken as at most 0 and at least 1."""
    items: list[ScenarioCurve]
