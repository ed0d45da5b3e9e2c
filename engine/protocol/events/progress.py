"""Progress of a run, folded from its events; shared by engine, studio and command line."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from engine.protocol.base import BaseEvent
from engine.protocol.events.run import (
    Event,
    PauseRequested,
    ReviewClosed,
    ReviewOpened,
    RunContinued,
    RunExtended,
    RunFailed,
    RunFinished,
    RunPaused,
    RunQueued,
    RunStarted,
    RunStopped,
    StepFinished,
    UnknownEvent,
    ValidationFinished,
)
from engine.protocol.events.sft import LossMeasured
from engine.protocol.problems import Problem
from engine.protocol.records.runs import ACTIVE_STATES, Interval, RunSpec, RunState

STATUS_AFTER: dict[type[BaseEvent], RunState] = {
    RunQueued: "queued",
    RunStarted: "running",
    RunContinued: "running",
    PauseRequested: "pausing",
    RunPaused: "paused",
    ReviewOpened: "reviewing",
    ReviewClosed: "running",
    RunStopped: "stopped",
    RunFailed: "failed",
    RunFinished: "finished",
}
"""Status of a run after each event that changes it."""
FOLDED: tuple[type[BaseEvent], ...] = (
    *STATUS_AFTER,
    RunExtended,
    StepFinished,
    ValidationFinished,
    LossMeasured,
)
KINDS = tuple(kind.model_fields["kind"].default for kind in FOLDED)
"""Kinds of the events that `RunProgress` needs; others change nothing."""


def validation_results(validations: Sequence[ValidationFinished]) -> dict[int, Interval]:
    """Result by step of each scored validation: mean reward or, if a judge compares validations,
    win rate against the first one as computed at the last one (the first itself is absent)."""
    rates = validations[-1].win_rates if validations else {}
    return dict(sorted(rates.items())) or {
        one.step: one.reward for one in validations if one.reward
    }


WORKING: frozenset[RunState] = frozenset({"starting", "running", "pausing", "stopping"})
"""States in which a run works; in the others it is idle."""


@dataclass
class RunProgress:
    """Status, finished steps and results of a run. Events are folded in the order of `seq`."""

    run_id: str = ""
    spec: RunSpec | None = None
    status: RunState = "starting"
    event_status: RunState = "starting"
    """Status by the events folded so far; `status` may already be a later one, which the engine's
    list of runs has."""
    status_seq: int = 0
    """Sequence number of the event that set `status`."""
    at: float = 0.0
    """Time of the last event, Unix seconds."""
    planned: int = 0
    """Planned steps; 0 if only an external script knows."""
    done: int = 0
    """Last finished step."""
    rewards: dict[int, float | None] = field(default_factory=dict)
    """Step → mean reward of a finished step; None if nothing was scored."""
    losses: dict[int, float] = field(default_factory=dict)
    """Step → held-out loss of an SFT run."""
    validations: list[ValidationFinished] = field(default_factory=list)
    """One validation per step, in order of the steps."""
    device: str = ""
    problem: Problem | None = None
    """Why the run failed."""
    reason: str = ""
    """Why the run stopped or failed."""
    pausing: bool = False
    """Whether a pause was requested that has not begun, also while a review is open."""
    trained_s: float = 0.0
    """Seconds in which the run worked, up to `counted_at`: without pauses, reviews, interruptions,
    and without the work on a step that an interruption has lost."""
    idle_s: float = 0.0
    """Seconds in between in which it was paused, waited for a review, or was interrupted."""
    counted_at: float = 0.0
    """Unix time of the last event of the kinds in FOLDED; 0 before the first."""

    @property
    def working(self) -> bool:
        """Whether the run is in a state in which passing time counts as training time."""
        return self.status in WORKING

    def times_at(self, now: float) -> tuple[float, float]:
        """Return training and idle seconds at a Unix time, which may be later than the last event
        of an active run."""
        passed = max(0.0, now - self.counted_at) if self.active and self.counted_at else 0.0
        if self.working:
            return self.trained_s + passed, self.idle_s
        return self.trained_s, self.idle_s + passed

    @property
    def win_rates(self) -> dict[int, Interval]:
        """Win rate against the first validation by step, as computed at the last validation; empty
        unless a judge compares validations."""
        return self.validations[-1].win_rates if self.validations else {}

    @property
    def win_rate(self) -> Interval | None:
        """Win rate of the last validation against the first one; None for the first, and unless a
        judge compares validations."""
        return self.win_rates.get(self.validations[-1].step) if self.validations else None

    @property
    def best(self) -> tuple[int, Interval] | None:
        """Step and result of the best validation, the earliest of equal ones: by win rate if a
        judge compares them, else by mean reward; None if nothing was scored."""
        found = validation_results(self.validations).items()
        return max(found, key=lambda result: result[1].mean, default=None)

    @property
    def active(self) -> bool:
        """Whether the run has a process, also while it is paused."""
        return self.status in ACTIVE_STATES

    @property
    def ended(self) -> bool:
        """Whether the run has stopped, failed or finished; False for a queued run."""
        return not self.active and self.status != "queued"

    def fold_all(self, events: Iterable[Event | UnknownEvent]) -> "RunProgress":
        for event in events:
            self.fold_progress(event)
        return self

    def fold_progress(self, event: Event | UnknownEvent) -> None:
        """Update this progress by the next stored event of the run."""
        self.at = max(self.at, event.at)
        if isinstance(event, FOLDED):
            self._count_time(event)
        self._follow_pause(event)
        if status := STATUS_AFTER.get(type(event)):
            status = "pausing" if status == "running" and self.pausing else status
            self.status, self.status_seq = status, event.seq or self.status_seq
            self.event_status = status
        match event:
            case RunQueued():
                self.spec, self.planned = event.spec, event.spec.updates
            case RunStarted():
                self.spec, self.device = event.spec, event.device or self.device
                self.planned = self.planned or event.spec.updates
                self.problem, self.reason = None, ""
                if event.resumed_from is not None:
                    self.rewind(event.resumed_from + 1)
            case RunExtended():
                self.planned = event.steps
            case StepFinished():
                if event.step <= self.done:  # trained again from an older checkpoint
                    self.rewind(event.step)
                self.rewards[event.step] = event.metrics.get("reward/mean")
                self.done = event.step
            case ValidationFinished():
                earlier = [one for one in self.validations if one.step < event.step]
                self.validations = [*earlier, event]
            case LossMeasured():
                self.losses[event.step] = event.loss
            case RunStopped():
                self.reason = event.reason
            case RunFailed():
                self.problem, self.reason = event.problem, event.problem.message

    def _follow_pause(self, event: Event | UnknownEvent) -> None:
        if isinstance(event, PauseRequested):
            self.pausing = True
        elif type(event) in STATUS_AFTER and not isinstance(event, ReviewOpened | ReviewClosed):
            self.pausing = False

    def _count_time(self, event: BaseEvent) -> None:
        """Add the time since the last counted event. Before a start it was idle, whatever the run
        did then: it was queued, had ended, or its engine was killed."""
        since, self.counted_at = self.counted_at, max(self.counted_at, event.at)
        passed = self.counted_at - since
        if not since or self.event_status == "queued":
            return
        if isinstance(event, RunStarted) or self.event_status not in WORKING:
            self.idle_s += passed
        else:
            self.trained_s += passed

    def rewind(self, step: int) -> None:
        """Discard the results from `step` on: training resumes from an older checkpoint."""
        self.rewards = {
            earlier_step: mean for earlier_step, mean in self.rewards.items() if earlier_step < step
        }
        self.validations = [one for one in self.validations if one.step < step]
        self.done = max(self.rewards, default=0)
