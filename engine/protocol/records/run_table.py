"""Table of runs and comparison of runs."""

from typing import Any, Literal

from pydantic import Field

from engine.protocol.base import Value
from engine.protocol.records.comparison import Comparison
from engine.protocol.records.runs import Interval, RunSummary

MOST_COMPARED = 8
"""Maximum number of runs in one comparison."""
Measure = Literal["reward", "win_rate"]


class RunPage(Value):
    """Page of the table of runs."""

    total: int
    """Number of matching runs over all pages."""
    items: list[RunSummary]
    """`rewards` and `losses` are thinned to a few points for sparklines."""
    tags: dict[str, int] = Field(default_factory=dict)
    """Number of runs by tag, over all runs of the project that are not archived."""
    archived: int = 0
    """Number of archived runs of the project."""
    runs: int = 0
    """Number of runs of the project, archived ones included."""
    partial: bool = False
    """Whether older runs are still being read, so that this page has only the newest ones."""


class SettingDifference(Value):
    """Setting that is not equal in all compared runs."""

    key: str
    """Dotted key of project.toml, `versions.NAME`, `rubric` or `device`."""
    values: list[Any]
    """Value in each run; None where there is none."""


class ComparedRun(Value):
    """Compared run."""

    run_id: str
    name: str
    step: int | None = None
    """Step of the compared validation; None without a validation."""
    validations: int = 0
    """Number of validations of the run; the best of many is likely too high."""
    result: Interval | None = None
    """Result of the compared validation: mean reward, or win rate against the run's own baseline.
    None without it."""
    unscored: int = 0
    """Number of scenarios of the validation without a score; excluded from every mean."""
    versus: Comparison | None = None
    """Paired comparison with the first run; None for the first run itself."""


class ScenarioScores(Value):
    """Scores of one scenario in the compared validations."""

    scenario_id: str
    title: str
    scores: list[float | None]
    """Mean score in each run; None if not scored."""


class RunComparison(Value):
    """Comparison of up to `MOST_COMPARED` runs; the first is the reference."""

    measure: Measure
    """Compared quantity: the reward, or the win rate of judged runs against their baseline."""
    at: Literal["best", "last"]
    runs: list[ComparedRun]
    scenarios: list[ScenarioScores]
    settings: list[SettingDifference]
    equal: int
    """Number of settings that are equal in all runs."""
