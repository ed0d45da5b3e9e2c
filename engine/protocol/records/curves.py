"""What came of each scenario of a run: a row, and the question for a page of them."""

from typing import Literal

from pydantic import Field

from engine.protocol.base import Request, Value
from engine.protocol.records.runs import Split


class ScenarioCurve(Value):
    """How a run came along with one scenario. A visit is one group of attempts at it."""

    scenario_id: str
    title: str
    visits: int
    attempts: int
    unscored: int
    mean: float | None
    """Mean reward of its scored attempts; None where none is scored, and the same below."""
    early: float | None
    """Share of attempts that solved it in the first third of the visits, one at least."""
    late: float | None
    """The same of the last third."""
    gain: float | None
    """late − early."""
    lost: float | None
    """The best third of the visits − late: what it could do before."""
    spread: float | None
    """Mean standard deviation inside its groups."""
    difficulty: float | None
    """1 − the smoothed solve rate of its last visits, as the curriculum `hard` has it."""
    last_step: int
    curve: list[tuple[float, float]] = Field(default_factory=list)
    """(step, mean reward) of its visits, oldest first; neighbours are averaged where there are very
    many."""


class CurveQuery(Request):
    """One page of what came of the scenarios; sorted in SQL, unknown values last."""

    split: Split = "train"
    search: str = ""
    """What a scenario's id contains."""
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
    """Scenarios that match, over all pages."""
    solved_at: float
    """An attempt with at least this reward counts as solved: halfway between the lowest and the
    highest reward of the run, which reach at least from 0 to 1."""
    items: list[ScenarioCurve]
