"""State of one run, folded from its events. Idempotent under replays and duplicates."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import assert_never

from engine.protocol.events import run as e
from engine.protocol.events.checkpoints import (
    CheckpointBranched,
    CheckpointDropped,
    CheckpointExported,
    CheckpointPinned,
    CheckpointSaved,
)
from engine.protocol.events.history import LINES_KEPT, History
from engine.protocol.events.progress import RunProgress
from engine.protocol.events.run import Event, UnknownEvent
from engine.protocol.events.sft import LossMeasured, WarmupFinished
from engine.protocol.records.clusters import ClusterProfile
from engine.protocol.records.comparison import EvaluationResult
from engine.protocol.records.runs import (
    Alert,
    Checkpoint,
    Finding,
    GroupSummary,
    Phase,
    RunSummary,
    TrajectorySummary,
)
from engine.protocol.records.runs import RunState as Status
from studio.store.runs.parts import FlightGroup, LogLine, StepRecord, planned_groups, restart_words
from studio.store.runs.series import Series

StoredEvent = Event | UnknownEvent | History
LOG_LINES = LINES_KEPT
HELD_OUT = "validation/loss"
"""Name of the series of held-out losses by step; the first value is that of step 0."""


class SequenceGap(ValueError):
    """Missing events in a stream, which must be requested again from `RunState.seq`."""


@dataclass
class RunState(RunProgress):
    """State of a run as displayed by the pages. `step` is the current step, `done` the last
    finished one."""

    seq: int = 0
    parameters: int = 0
    cluster: ClusterProfile | None = None
    """Measured behaviour of the cluster that samples and trains, if one does."""
    trainable: int = 0
    dtype: str = ""
    sampler: str = ""
    """Sampling backend and its precision; empty if the trainer's process samples."""
    engine_status: Status | None = None
    """Status in the engine's list of runs, once loaded."""
    engine_seq: int = 0
    """Sequence number of the last event included in the engine's list."""
    phase: Phase | None = None
    phase_at: float = 0.0
    step: int = 0
    step_at: float = 0.0
    steps: list[StepRecord] = field(default_factory=list)
    series: dict[str, Series] = field(default_factory=dict)
    checkpoints: list[Checkpoint] = field(default_factory=list)
    branches: dict[int, list[str]] = field(default_factory=dict)
    """Step → names of the runs branched there."""
    spoken: int = 0
    """Number of checkpoint events so far, to detect changes of the list of checkpoints."""
    exports: list[CheckpointExported] = field(default_factory=list)
    flight: dict[int, FlightGroup] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    alerts: list[Alert] = field(default_factory=list)
    log: deque[LogLine] = field(default_factory=lambda: deque(maxlen=LOG_LINES))
    logged: int = 0
    restarts: list[e.WorkerRestarted] = field(default_factory=list)
    resumes: list[int] = field(default_factory=list)
    warmup: WarmupFinished | None = None
    trajectories: int = 0
    unscored: int = 0
    step_unscored: int = 0
    awaiting: set[str] = field(default_factory=set)
    """Ids of finished rollouts that wait for the judge."""
    relabelled: dict[str, float | None] = field(default_factory=dict)
    """Trajectory id → reward changed by a label; None: excluded."""
    labelled: set[tuple[str, int, int]] = field(default_factory=set)
    """(split, step, group) of the labelled groups."""
    rubric: str = ""
    """Text of the current rubric; empty without a judge."""
    canaries: list[bool] = field(default_factory=list)
    """For each canary trajectory, whether the judge ranked it low."""
    review: e.ReviewOpened | None = None
    """Review for which the run waits; None without one."""
    closed: int = 0
    """Last step whose training batch is final; labels of later steps still enter their update."""
    judge_calls: int = 0
    judge_failed: int = 0
    judge_usd: float = 0.0
    """Cost of the answered judge calls in US dollars, without calls in progress."""
    attempts_usd: float = 0.0
    """Cost of the calls to provider models in an evaluation, in US dollars."""
    evaluation: EvaluationResult | None = None
    """Result of an evaluation, after its last trajectory was stored."""
    progress: e.ProgressTicked | None = field(default=None, compare=False)
    """Last progress event, for display only."""

    def trained_at(self, step: int) -> float | None:
        """Return the training seconds up to the end of a step; None if it is not known."""
        return next((one.trained_s for one in self.steps if one.step == step), None)

    def obey(self, summary: RunSummary) -> None:
        """Apply the status from the engine's list of runs, unless a newer event has set it. Only
        the engine can tell that a killed run has stopped."""
        self.engine_status, self.engine_seq = summary.state, summary.seq
        self._settle()

    def _settle(self) -> None:
        """Set the status from the engine's list, unless an event newer than the list changed it."""
        if self.engine_status is None or self.status_seq > self.engine_seq:
            return
        self.status = self.engine_status
        if not self.active:
            self.phase = self.progress = self.review = None

    def fold(self, events: Iterable[StoredEvent]) -> "RunState":
        """Apply events in order, and return this state. Raises SequenceGap if events are
        missing."""
        for event in events:
            self.apply(event)
        return self

    def apply(self, event: StoredEvent) -> bool:
        """Apply the next event. Returns False for an old one; raises SequenceGap after a gap."""
        if isinstance(event, e.ProgressTicked):
            return self._tick(event)
        if event.seq is None or event.seq <= self.seq:
            return False
        first = event.first if isinstance(event, History) else event.seq
        if first != self.seq + 1:
            raise SequenceGap(f"run {self.run_id}: expected event {self.seq + 1}, received {first}")
        self.seq = event.seq
        if isinstance(event, History):
            self.at = max(self.at, event.at)
            self._catch_up(event)
        elif not isinstance(event, UnknownEvent):
            self._take(event)
        self._settle()
        return True

    def _catch_up(self, history: History) -> None:
        for event in history.events:
            if not isinstance(event, UnknownEvent):
                self._take(event)
        for name, awaits, unscored in history.settled:
            if name in self.awaiting and not awaits:
                self.awaiting.discard(name)
                self.unscored += unscored
        self.awaiting.difference_update(history.recorded)
        self.awaiting.update(history.awaiting)
        self.trajectories += history.trajectories
        self.unscored += history.unscored
        self.judge_calls += history.judge_calls
        self.judge_failed += history.judge_failed
        self.judge_usd += history.judge_usd
        self.attempts_usd += history.attempts_usd
        self.logged += history.logged

    def _tick(self, event: e.ProgressTicked) -> bool:
        fits = self.active and event.step >= self.done
        if fits:
            self.progress = event
        return fits

    def _take(self, event: Event) -> None:
        self.fold_progress(event)
        match event:
            case e.TrajectoryRecorded():
                self._record(event.trajectory)
            case e.CallOpened():
                self.judge_calls += not event.attempt
            case e.CallClosed() if event.attempt:
                self.attempts_usd += event.usage.cost_usd
            case e.CallClosed():
                self.judge_failed += event.problem is not None
                self.judge_usd += event.usage.cost_usd
            case e.GroupJudged():
                for trajectory in event.trajectories:
                    if trajectory.id in self.awaiting:
                        self._place(trajectory)
            case e.RubricChanged():
                self.rubric = event.source
            case e.CanaryJudged():
                self.canaries.append(event.caught)
            case e.GroupScored():
                self._score(event)
            case e.GroupLabelled():
                self._relabel(event)
            case e.ReviewOpened():
                self.review = event
            case e.ReviewClosed():
                self.review = None
            case e.BatchClosed():
                self.closed = max(self.closed, event.step)
            case e.LogWritten():
                self._write(event.at, event.level, event.source, event.text)
            case e.PhaseChanged():
                self._enter(event)
            case e.StepStarted():
                self._start_step(event)
            case e.StepExtended():
                self.flight |= planned_groups(event.groups)
            case e.StepFinished():
                self._finish_step(event)
            case e.MetricsLogged():
                for name, value in event.values.items():
                    self.series.setdefault(f"script/{name}", Series()).append(event.step, value)
            case LossMeasured():
                self._measure(event)
            case e.EvaluationFinished():
                self.evaluation = event.result
            case CheckpointSaved():
                kept = [c for c in self.checkpoints if c.step < event.checkpoint.step]
                self.checkpoints = [*kept, event.checkpoint]
            case CheckpointDropped():
                self.checkpoints = [c for c in self.checkpoints if c.step != event.step]
            case CheckpointPinned():
                self.spoken += 1
            case CheckpointBranched():
                self.spoken += 1
                self.branches.setdefault(event.step, []).append(event.name)
            case CheckpointExported():
                self.spoken += 1
                self.exports.append(event)
            case e.DiagnosisChanged():
                self.findings = list(event.findings)
            case e.AlertsChanged():
                self.alerts = list(event.alerts)
            case e.RunStarted():
                self._start(event)
            case e.PolicyLoaded():
                self.parameters, self.trainable = event.parameters, event.trainable
                self.dtype, self.sampler = event.dtype, event.sampler
                self.cluster = event.cluster
            case WarmupFinished():
                self.warmup = event
            case e.WorkerRestarted():
                self.restarts.append(event)
                self._write(event.at, "warning", event.worker, restart_words(event))
            case e.RunStopped() | e.RunFailed() | e.RunFinished():
                self.review = self.phase = self.progress = None
            case (
                e.RunQueued()
                | e.PauseRequested()
                | e.RunPaused()
                | e.RunContinued()
                | e.RunExtended()
                | e.ValidationFinished()
            ):
                pass  # applied by `RunProgress`
            case e.ProgressTicked():
                raise AssertionError("ProgressTicked is applied by _tick, never here")
            case _:
                assert_never(event)

    def _write(self, at: float, level: str, source: str, text: str) -> None:
        self.log.append(LogLine(at, level, source, text))
        self.logged += 1

    def _start(self, event: e.RunStarted) -> None:
        self.rubric = self.rubric or event.spec.rubric
        self.phase, self.phase_at = None, event.at
        self.flight = {}
        if event.resumed_from is not None:
            self.resumes.append(event.resumed_from)

    def rewind(self, step: int) -> None:
        """Drop the data of `step` and later ones, before they are repeated."""
        super().rewind(step)
        self.steps = [record for record in self.steps if record.step < step]
        self.step = self.done
        for series in self.series.values():
            series.rewind(step)

    def _enter(self, event: e.PhaseChanged) -> None:
        self.phase, self.phase_at = event.phase, event.at
        self.step = max(event.step, self.done)
        self.progress = None

    def _start_step(self, event: e.StepStarted) -> None:
        if event.step <= self.done:
            self.rewind(event.step)
        self.step, self.step_at, self.step_unscored = event.step, event.at, 0
        self.flight = planned_groups(event.groups)

    def _record(self, trajectory: TrajectorySummary) -> None:
        self.trajectories += 1
        self._place(trajectory)

    def _place(self, trajectory: TrajectorySummary) -> None:
        """Count a trajectory as unscored or as waiting for the judge, and store its reward."""
        self.awaiting.discard(trajectory.id)
        if trajectory.awaits_judge:
            self.awaiting.add(trajectory.id)
        elif trajectory.reward is None:
            self.unscored += 1
            self.step_unscored += 1
        flying = trajectory.split == "train" and trajectory.step == self.step
        if flying and (group := self.flight.get(trajectory.group)):
            group.rewards[trajectory.index] = trajectory.reward

    def _relabel(self, event: e.GroupLabelled) -> None:
        """Apply the rewards of a labelled group."""
        for now in event.trajectories:
            was = now.unlabelled.reward if now.unlabelled else now.reward
            before = self.relabelled.pop(now.id, was)
            self.unscored += (now.reward is None) - (before is None)
            if now.unlabelled:
                self.relabelled[now.id] = now.reward
        place = (event.group.split, event.group.step, event.group.group)
        if any(one.labels for one in event.trajectories):
            self.labelled.add(place)
        else:
            self.labelled.discard(place)
        self._show(event.group)

    def _score(self, event: e.GroupScored) -> None:
        self._show(event.group)

    def _show(self, summary: GroupSummary) -> None:
        if summary.split != "train" or summary.step != self.step:
            return
        group = self.flight.setdefault(
            summary.group,
            FlightGroup(summary.group, summary.scenario_id, summary.title, len(summary.rewards)),
        )
        group.summary = summary
        group.rewards = dict(enumerate(summary.rewards))

    def _finish_step(self, event: e.StepFinished) -> None:
        seconds = event.metrics.get("time_s/step") or max(
            0.0, event.at - (self.step_at or event.at)
        )
        self.steps.append(
            StepRecord(
                event.step,
                event.at,
                event.skipped,
                event.reason,
                dict(event.metrics),
                seconds,
                self.trained_s,
            )
        )
        self.step = event.step
        for name, value in event.metrics.items():
            self.series.setdefault(name, Series()).append(event.step, value)

    def _measure(self, event: LossMeasured) -> None:
        self.series.setdefault(HELD_OUT, Series()).append(event.step, event.loss)
