"""Parts of a run's state."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from engine.protocol.events import run as e
from engine.protocol.records.runs import GroupSummary


@dataclass(frozen=True)
class StepRecord:
    """Finished step."""

    step: int
    at: float
    skipped: bool
    reason: str
    metrics: dict[str, float]
    seconds: float
    """Wall-clock time of the step: its metric `time_s/step`, or else from its start to its end."""
    trained_s: float = 0.0
    """Training time of the run at its end, without idle time."""


@dataclass(frozen=True)
class LogLine:
    at: float
    level: str
    source: str
    text: str


@dataclass
class FlightGroup:
    """Group of the current step, with the results so far."""

    group: int
    scenario_id: str
    title: str
    size: int
    rewards: dict[int, float | None] = field(default_factory=dict)
    """Reward by trajectory index (from 0); None: unscored."""
    summary: GroupSummary | None = None

    @property
    def done(self) -> int:
        """Return the number of finished trajectories, unscored ones included."""
        return len(self.rewards)

    @property
    def scored(self) -> list[float]:
        """Return the rewards so far, without unscored trajectories."""
        return [reward for reward in self.rewards.values() if reward is not None]


def restart_words(event: e.WorkerRestarted) -> str:
    """Describe why a worker was restarted, and how often in a row."""
    again = f" (consecutive restart {event.attempt})" if event.attempt > 1 else ""
    return f"{event.problem.message} Restarting{again}."


def planned_groups(groups: Iterable[e.PlannedGroup]) -> dict[int, FlightGroup]:
    """Return the planned groups of a step by group number, still without rewards."""
    return {g.group: FlightGroup(g.group, g.scenario_id, g.title, g.size) for g in groups}
