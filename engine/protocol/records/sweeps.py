"""Records of sweeps: trials, their runs and results.

A *trial* is one combination of values of the swept settings; it has one run per seed.
"""

from typing import Any, Literal

from pydantic import Field

from engine.protocol.base import Value
from engine.protocol.config.project import ProjectConfig
from engine.protocol.config.sweep import Range, SettingValue, SweepConfig
from engine.protocol.identifiers import RunId
from engine.protocol.problems import Problem
from engine.protocol.records.runs import Interval

TrialState = Literal["waiting", "running", "finished", "pruned", "failed"]
"""State of a trial, or of one of its runs. `waiting`: not started; `running`: started, and resumed
where it stopped if the sweep is not active; `pruned`: stopped early by successive halving."""
SweepState = Literal["waiting", "running", "paused", "stopped", "finished"]
"""State of a sweep. `waiting`: another run or sweep uses the device; `stopped`: by a person, by its
budget, or after failures. Paused and stopped sweeps can be resumed."""
SweepMetric = Literal["validation/reward", "validation/win_rate"]
"""Result of a run: its best validation reward or, with a judge, its best win rate against the
untrained policy. All runs of a sweep start from the same untrained policy, so win rates against it
are comparable between trials."""
Values = dict[str, SettingValue]
"""Swept settings by dotted key."""
Space = dict[str, tuple[SettingValue, ...] | Range]
"""Swept settings with the values they may have."""


class SweepPoint(Value):
    """Best validation of a run up to one of its validations."""

    step: int
    """Step of the validation."""
    best: Interval | None
    """Best result up to this step; None if nothing was scored."""
    best_step: int = 0
    """Step of the best result."""


class SweepRun(Value):
    """Run of a trial with one seed."""

    seed: int
    run_id: str = ""
    """Id of the run; empty if it was never started."""
    name: str = ""
    state: TrialState = "waiting"
    step: int = 0
    """Number of finished steps."""
    steps: int
    """Number of planned steps."""
    curve: tuple[SweepPoint, ...] = ()
    """Points in order, one per validation after the first step."""
    seconds: float = 0.0
    """Time that the run was active, up to its last stored result."""
    cost_usd: float = 0.0
    problem: Problem | None = None
    """Why the run failed."""

    @property
    def result(self) -> Interval | None:
        """Result of the run's best validation so far; None if none was scored."""
        return self.curve[-1].best if self.curve else None


class SweepTrial(Value):
    """Combination of values with its runs."""

    number: int
    """From 1, in order of the start."""
    values: Values
    runs: tuple[SweepRun, ...]
    """Runs in order of their seeds, one per seed."""
    state: TrialState = "waiting"
    result: Interval | None = None
    """Mean of the runs' best validations, with a 95 % interval that includes the variation between
    seeds; None without a validation."""
    problem: Problem | None = None
    """Why the trial failed: one of its runs did."""


class SweepRecord(Value):
    """Everything stored about a sweep (`sweep.json`)."""

    schema_version: int = 1
    id: RunId
    name: str
    """Two words, easier to remember than the id."""
    project: str
    """Name of the project at the start of the sweep."""
    started_at: float
    settings: dict[str, Any]
    """Nested settings that all runs share: project.toml at the start, with overrides, without
    [sweep]."""
    config: ProjectConfig
    """All settings at the start, with defaults and [sweep]."""
    space: Space
    """Swept settings, with numbers of the settings' types."""
    planned: int
    """Number of trials to run."""
    prune_at: tuple[int, ...] = ()
    """Steps at which successive halving decides."""
    state: SweepState = "waiting"
    problem: Problem | None = None
    """Why the sweep paused or stopped; None if a person asked for it."""
    revision: int = 1
    """Number of changes so far."""
    trials: tuple[SweepTrial, ...] = ()
    """All trials proposed so far, in order."""
    resumed_at: tuple[str, int] = ("", 0)
    """Run and step at which a new engine last resumed the sweep by itself."""
    resumptions: int = 0
    """Number of times that an engine resumed it there."""

    @property
    def metric(self) -> SweepMetric:
        return "validation/win_rate" if self.config.judge.enabled else "validation/reward"


class SweepPlan(Value):
    """Size of a sweep before it starts."""

    sweep: SweepConfig
    space: Space
    metric: SweepMetric
    trials: int
    """Number of trials."""
    seeds: int
    """Runs per trial."""
    steps: int
    """Steps of all runs together without pruning."""
    prune_at: tuple[int, ...] = ()
    """Steps at which successive halving decides; empty if it never does."""
    values: list[Values] = Field(default_factory=list)
    """Values of each trial, as far as they are known before the first result."""


class SweepSummary(Value):
    """Row of a list of sweeps."""

    id: str
    name: str
    project: str
    project_path: str
    path: str
    state: SweepState
    problem: Problem | None = None
    started_at: float
    metric: SweepMetric
    method: Literal["grid", "random", "tpe"]
    trials_planned: int
    trials_ended: int
    """Number of trials that are finished, pruned or failed."""
    best: int | None = None
    """Number of the finished trial with the best result; None if there is none."""
    result: Interval | None = None
    """Result of the best trial."""
    revision: int = 0


class SweepView(SweepSummary):
    """A sweep with its table."""

    sweep: SweepConfig
    space: Space
    trials: list[SweepTrial] = Field(default_factory=list)
    """In order of the start; those of a grid or random search from the beginning."""
    running: str = ""
    """Id of the run that is active now; empty if there is none."""
    importance: dict[str, float] = Field(default_factory=dict)
    """Setting → share of the results' variation that it explains (PED-ANOVA, 2304.10255), from 0 to
    1 with sum 1; empty with too few results or only one setting."""
    steps_done: int = 0
    steps_planned: int = 0
    """Steps of all planned runs without pruning."""
    steps_saved: int = 0
    """Steps that pruning has saved so far."""
    seconds: float = 0.0
    """Time that runs were active, in total."""
    cost_usd: float = 0.0
    prune_at: tuple[int, ...] = ()
    """Steps at which successive halving decides."""
