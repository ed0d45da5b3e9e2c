"""Events of a run: past tense, frozen, discriminated by `kind`.

A stored event has a sequence number `seq` (1, 2, 3 … per run, without gaps), assigned in the
transaction that stores the data it reports. `ProgressTicked` has none and is never stored. Unknown
kinds and fields are skipped, so an old studio reads a new run.
"""

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError

from engine.protocol.base import BaseEvent, Value
from engine.protocol.events.checkpoints import (
    CheckpointBranched,
    CheckpointDropped,
    CheckpointExported,
    CheckpointPinned,
    CheckpointSaved,
)
from engine.protocol.events.sft import LossMeasured, WarmupFinished
from engine.protocol.problems import Problem
from engine.protocol.records.clusters import ClusterProfile
from engine.protocol.records.comparison import EvaluationResult, StepComparison
from engine.protocol.records.judging import Usage
from engine.protocol.records.labels import Label
from engine.protocol.records.machine.hardware import Card
from engine.protocol.records.runs import (
    Alert,
    Finding,
    GroupSummary,
    Interval,
    Phase,
    RunSpec,
    Split,
    TrajectorySummary,
)


class RunQueued(BaseEvent):
    """The run was queued because the device is busy."""

    kind: Literal["run.queued"] = "run.queued"
    spec: RunSpec


class RunStarted(BaseEvent):
    """The run was started, or resumed from the step `resumed_from`."""

    kind: Literal["run.started"] = "run.started"
    spec: RunSpec
    resumed_from: int | None = None
    device: str = ""


class PolicyLoaded(BaseEvent):
    kind: Literal["policy.loaded"] = "policy.loaded"
    parameters: int
    trainable: int
    dtype: str
    seconds: float
    sampler: str = ""
    """Sampling backend and its precision, if it is not the trainer's process."""
    cluster: ClusterProfile | None = None
    """Measured behaviour of the cluster that samples and trains, if one does."""


class PhaseChanged(BaseEvent):
    kind: Literal["phase.changed"] = "phase.changed"
    step: int
    phase: Phase


class PlannedGroup(Value):
    group: int
    scenario_id: str
    title: str
    size: int


class StepStarted(BaseEvent):
    kind: Literal["step.started"] = "step.started"
    step: int
    groups: list[PlannedGroup]


class StepExtended(BaseEvent):
    """Groups were added to the step to replace groups without signal."""

    kind: Literal["step.extended"] = "step.extended"
    step: int
    groups: list[PlannedGroup]


class TrajectoryRecorded(BaseEvent):
    """A rollout ended, successfully or not, and its trajectory was stored."""

    kind: Literal["trajectory.recorded"] = "trajectory.recorded"
    trajectory: TrajectorySummary


class CallOpened(BaseEvent):
    """A call to a judge, or to a provider's model in an evaluation, is about to be sent; its
    maximum cost counts until it is closed."""

    kind: Literal["call.opened"] = "call.opened"
    key: str
    judge: str
    most_usd: float
    attempt: str = ""
    """Id of the trajectory that makes the call; empty for a call to a judge."""


class CallClosed(BaseEvent):
    """A call was answered or given up."""

    kind: Literal["call.closed"] = "call.closed"
    key: str
    judge: str
    usage: Usage
    seconds: float
    problem: Problem | None = None
    attempt: str = ""
    """Id of the trajectory, as in `call.opened`."""


class GroupJudged(BaseEvent):
    """The judges scored the trajectories of a group."""

    kind: Literal["group.judged"] = "group.judged"
    split: Split
    step: int
    group: int
    trajectories: list[TrajectorySummary]
    """Trajectories in their current state; empty if the verdicts changed no reward."""


class RubricChanged(BaseEvent):
    """The rubric was changed; it applies to groups judged after this event."""

    kind: Literal["rubric.changed"] = "rubric.changed"
    step: int
    """Current step."""
    source: str


class CanaryJudged(BaseEvent):
    """A canary trajectory was added to a group to test the judge; it is not trained on."""

    kind: Literal["canary.judged"] = "canary.judged"
    step: int
    group: int
    what: str
    """Kind of the canary: `flattery`, `silence` or `bluster`."""
    judge: str
    score: float | None
    others: float
    """Median score of the real trajectories."""
    caught: bool


class GroupScored(BaseEvent):
    kind: Literal["group.scored"] = "group.scored"
    group: GroupSummary


class GroupLabelled(BaseEvent):
    """A person labelled a group, or undid or redid a label."""

    kind: Literal["group.labelled"] = "group.labelled"
    label: Label
    undone: bool = False
    group: GroupSummary
    trajectories: list[TrajectorySummary]
    """Trajectories in their current state; so is `group`."""


class ReviewOpened(BaseEvent):
    """The run waits for labels on this step."""

    kind: Literal["review.opened"] = "review.opened"
    step: int
    until: float | None
    """Unix time in seconds at which the run continues without labels."""
    then: Literal["train", "pause"]


class ReviewClosed(BaseEvent):
    kind: Literal["review.closed"] = "review.closed"
    step: int
    by: Literal["person", "timeout", "stop"]


class BatchClosed(BaseEvent):
    """The batch of this step is final: labels stored later do not change its update."""

    kind: Literal["batch.closed"] = "batch.closed"
    step: int
    again: list[tuple[int, int]] = Field(default_factory=list)
    """(step, group) of relabelled groups that are trained on again."""


class StepFinished(BaseEvent):
    """A step finished with an update, or without one for lack of signal."""

    kind: Literal["step.finished"] = "step.finished"
    step: int
    skipped: bool = False
    reason: str = ""
    metrics: dict[str, float]
    """Metric key (see `metrics.md` in the help) → finite value."""
    dropped: int = 0
    """Number of metrics that were not finite."""


class MetricsLogged(BaseEvent):
    """Metrics logged by an external script, by its own names."""

    kind: Literal["metrics.logged"] = "metrics.logged"
    step: int
    split: str
    """Name of the split in the script."""
    values: dict[str, float]
    dropped: int = 0
    """Number of values that were not finite."""


class ValidationFinished(BaseEvent):
    kind: Literal["validation.finished"] = "validation.finished"
    step: int
    reward: Interval | None
    """None if no scenario was scored, or if the judge's scores are only relative."""
    scenarios: dict[str, float]
    """Scenario id → mean reward; empty if `reward` is None."""
    unscored: int
    seconds: float
    against: tuple[StepComparison, ...] = ()
    """Comparisons with earlier validations; empty without a judge and for the first validation."""
    win_rates: dict[int, Interval] = Field(default_factory=dict)
    """Step → probability of beating the first validation, for all steps compared so far (one
    Bradley–Terry scale of all comparisons); empty without comparisons."""
    criteria: dict[str, Interval] = Field(default_factory=dict)
    """Criterion of the rubric → mean score by the judge; empty without a judge or criteria."""


class EvaluationFinished(BaseEvent):
    """All trajectories of an evaluation are stored; labels may still change the result."""

    kind: Literal["evaluation.finished"] = "evaluation.finished"
    result: EvaluationResult


class DiagnosisChanged(BaseEvent):
    """Current findings, which replace the previous ones; an empty list clears them."""

    kind: Literal["diagnosis.changed"] = "diagnosis.changed"
    step: int
    findings: list[Finding]


class AlertsChanged(BaseEvent):
    """Current alerts, which replace the previous ones; an empty list clears them."""

    kind: Literal["alerts.changed"] = "alerts.changed"
    step: int
    alerts: list[Alert]


class WorkerRestarted(BaseEvent):
    kind: Literal["worker.restarted"] = "worker.restarted"
    worker: Literal["policy", "agent", "judge", "provider", "sampler", "cluster", "losses"]
    attempt: int
    problem: Problem


class LogWritten(BaseEvent):
    kind: Literal["log.written"] = "log.written"
    level: Literal["info", "warning", "error"]
    source: str
    text: str


class PauseRequested(BaseEvent):
    """A pause was requested: the run pauses after what it is doing."""

    kind: Literal["pause.requested"] = "pause.requested"
    step: int
    """Last finished step."""


class RunPaused(BaseEvent):
    kind: Literal["run.paused"] = "run.paused"
    step: int


class RunContinued(BaseEvent):
    kind: Literal["run.continued"] = "run.continued"
    step: int


class RunExtended(BaseEvent):
    kind: Literal["run.extended"] = "run.extended"
    steps: int


class RunStopped(BaseEvent):
    """The run stopped on request or with its engine; it can be resumed."""

    kind: Literal["run.stopped"] = "run.stopped"
    step: int
    reason: str


class RunFailed(BaseEvent):
    kind: Literal["run.failed"] = "run.failed"
    step: int
    problem: Problem


class RunFinished(BaseEvent):
    kind: Literal["run.finished"] = "run.finished"
    step: int
    seconds: float
    reward_first: float | None = None
    reward_last: float | None = None
    validation: Interval | None = None
    baseline: Interval | None = None
    win_rate: Interval | None = None
    """Win rate of the last validation against the first, if a judge compares them."""
    checkpoint: str = ""
    loss_first: float | None = None
    """Held-out loss before the first update; SFT runs only."""
    loss_best: float | None = None
    """Lowest held-out loss."""
    loss_step: int = 0
    """Step of the lowest held-out loss."""


class ProgressTicked(BaseEvent):
    """Progress within a phase. Never stored; state must not depend on it."""

    kind: Literal["progress.ticked"] = "progress.ticked"
    step: int
    phase: Phase
    done: int
    total: int
    words: str = ""
    in_flight: dict[int, tuple[int, int]] = Field(default_factory=dict)
    """Group number → (finished rollouts, model calls so far)."""
    hardware: dict[str, float] = Field(default_factory=dict)
    """Key → value: `cpu/percent`, `memory/bytes`, `memory/total_bytes`, `tokens_per_s`."""
    cards: tuple[Card, ...] = ()
    """Graphics cards visible to CUDA, measured at most two seconds ago; empty without CUDA."""


Event = (
    RunQueued
    | RunStarted
    | PolicyLoaded
    | PhaseChanged
    | WarmupFinished
    | StepStarted
    | StepExtended
    | TrajectoryRecorded
    | CallOpened
    | CallClosed
    | GroupJudged
    | RubricChanged
    | CanaryJudged
    | GroupScored
    | GroupLabelled
    | ReviewOpened
    | ReviewClosed
    | BatchClosed
    | StepFinished
    | MetricsLogged
    | ValidationFinished
    | LossMeasured
    | EvaluationFinished
    | DiagnosisChanged
    | AlertsChanged
    | CheckpointSaved
    | CheckpointPinned
    | CheckpointBranched
    | CheckpointDropped
    | CheckpointExported
    | WorkerRestarted
    | LogWritten
    | PauseRequested
    | RunPaused
    | RunContinued
    | RunExtended
    | RunStopped
    | RunFailed
    | RunFinished
    | ProgressTicked
)

FINAL = (RunStopped, RunFailed, RunFinished)
"""Last event of a run until it is resumed."""


class UnknownEvent(BaseEvent):
    """Event of a newer engine: only its `seq` is used."""

    kind: str


_ADAPTER: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="kind")])
_KINDS = frozenset(member.model_fields["kind"].default for member in Event.__args__)  # type: ignore[attr-defined]


def encode(event: BaseEvent) -> str:
    """Return an event as one line of JSON."""
    return event.model_dump_json()


def decode(line: str | bytes) -> Event | UnknownEvent:
    """Decode an event. Raises ValueError if the line is not an event."""
    try:
        return _ADAPTER.validate_json(line)
    except ValidationError:
        event = UnknownEvent.model_validate_json(line)
        if event.kind in _KINDS:
            raise
        return event
