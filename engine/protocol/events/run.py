"""What a run says while it works. Events are past tense, frozen, discriminated on `kind`.

A stored event has a `seq` (1, 2, 3 … per run, no gaps), assigned in the transaction that stores the
data it speaks of. `ProgressTicked` has none and is never stored. Unknown kinds and fields are
skipped, so an old studio reads a new run.
"""

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError

from engine.protocol.base import Value
from engine.protocol.events.base import BaseEvent
from engine.protocol.events.checkpoints import (
    CheckpointBranched,
    CheckpointDropped,
    CheckpointExported,
    CheckpointPinned,
    CheckpointSaved,
)
from engine.protocol.events.sft import LossMeasured, WarmupFinished
from engine.protocol.problems import Problem
from engine.protocol.records.comparison import EvaluationResult
from engine.protocol.records.hardware import Card
from engine.protocol.records.judging import Usage
from engine.protocol.records.labels import Label
from engine.protocol.records.runs import (
    Finding,
    GroupSummary,
    Interval,
    Phase,
    RunSpec,
    Split,
    TrajectorySummary,
)


class RunQueued(BaseEvent):
    """The run waits until the device is free; then it is started."""

    kind: Literal["run.queued"] = "run.queued"
    spec: RunSpec


class RunStarted(BaseEvent):
    """The run exists; also said again when it is resumed, with the step it goes on from."""

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
    """What samples and in which precision, where it is not the trainer's own process."""


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
    """Groups without signal are made up for by further ones of the same step."""

    kind: Literal["step.extended"] = "step.extended"
    step: int
    groups: list[PlannedGroup]


class TrajectoryRecorded(BaseEvent):
    """A rollout ended, well or not, and is stored."""

    kind: Literal["trajectory.recorded"] = "trajectory.recorded"
    trajectory: TrajectorySummary


class CallOpened(BaseEvent):
    """A question is about to be sent to a judge, or to a provider's model in an evaluation; its
    highest cost counts from now on."""

    kind: Literal["call.opened"] = "call.opened"
    key: str
    judge: str
    most_usd: float
    attempt: str = ""
    """The trajectory that asks, where it is no question to a judge."""


class CallClosed(BaseEvent):
    """It was answered, or is given up."""

    kind: Literal["call.closed"] = "call.closed"
    key: str
    judge: str
    usage: Usage
    seconds: float
    problem: Problem | None = None
    attempt: str = ""
    """As in `call.opened`."""


class GroupJudged(BaseEvent):
    """The judges have compared the attempts of a group."""

    kind: Literal["group.judged"] = "group.judged"
    split: Split
    step: int
    group: int
    trajectories: list[TrajectorySummary]
    """As they are now; none where the verdicts changed no reward."""


class RubricChanged(BaseEvent):
    """The judge goes by other words from the groups on that are judged after this."""

    kind: Literal["rubric.changed"] = "rubric.changed"
    step: int
    """The one under way."""
    source: str


class CanaryJudged(BaseEvent):
    """A planted attempt was put among those of a group, to test the judge; it trains nothing."""

    kind: Literal["canary.judged"] = "canary.judged"
    step: int
    group: int
    what: str
    """`flattery`, `silence` or `bluster`."""
    judge: str
    score: float | None
    others: float
    """Median score of the real attempts."""
    caught: bool


class GroupScored(BaseEvent):
    kind: Literal["group.scored"] = "group.scored"
    group: GroupSummary


class GroupLabelled(BaseEvent):
    """A person has spoken about a group, or has undone or redone what was said."""

    kind: Literal["group.labelled"] = "group.labelled"
    label: Label
    undone: bool = False
    group: GroupSummary
    trajectories: list[TrajectorySummary]
    """As they are now; `group` likewise."""


class ReviewOpened(BaseEvent):
    """The run waits for labels on this step."""

    kind: Literal["review.opened"] = "review.opened"
    step: int
    until: float | None
    """Unix seconds at which it goes on by itself."""
    then: Literal["train", "pause"]


class ReviewClosed(BaseEvent):
    kind: Literal["review.closed"] = "review.closed"
    step: int
    by: Literal["person", "timeout", "stop"]


class BatchClosed(BaseEvent):
    """What the update of this step learns from is settled: only labels stored before count."""

    kind: Literal["batch.closed"] = "batch.closed"
    step: int
    again: list[tuple[int, int]] = Field(default_factory=list)
    """(step, group) of corrected groups that are trained on again."""


class StepFinished(BaseEvent):
    """An update was made, or skipped for want of signal."""

    kind: Literal["step.finished"] = "step.finished"
    step: int
    skipped: bool = False
    reason: str = ""
    metrics: dict[str, float]
    """Finite numbers by documented name (see `metrics.md` in the help)."""
    dropped: int = 0
    """Metrics that were not finite."""


class MetricsLogged(BaseEvent):
    """Figures that a script outside has logged, by its own names."""

    kind: Literal["metrics.logged"] = "metrics.logged"
    step: int
    split: str
    """As the script calls it."""
    values: dict[str, float]
    dropped: int = 0
    """Those that were not finite."""


class ValidationFinished(BaseEvent):
    kind: Literal["validation.finished"] = "validation.finished"
    step: int
    reward: Interval | None
    """None when no scenario could be scored."""
    scenarios: dict[str, float]
    """Mean reward by scenario id."""
    unscored: int
    seconds: float


class EvaluationFinished(BaseEvent):
    """All attempts of an evaluation are stored; labels may still change what came out."""

    kind: Literal["evaluation.finished"] = "evaluation.finished"
    result: EvaluationResult


class DiagnosisChanged(BaseEvent):
    """The findings that hold from here on; an empty list clears them."""

    kind: Literal["diagnosis.changed"] = "diagnosis.changed"
    step: int
    findings: list[Finding]


class WorkerRestarted(BaseEvent):
    kind: Literal["worker.restarted"] = "worker.restarted"
    worker: Literal["policy", "agent", "judge", "provider", "sampler"]
    attempt: int
    problem: Problem


class LogWritten(BaseEvent):
    kind: Literal["log.written"] = "log.written"
    level: Literal["info", "warning", "error"]
    source: str
    text: str


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
    """Ended on request (or with its engine); it can be resumed."""

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
    checkpoint: str = ""
    loss_first: float | None = None
    """Of an SFT run: on the held-out demonstrations before the first update."""
    loss_best: float | None = None
    """The lowest one."""
    loss_step: int = 0
    """The step that had it."""


class ProgressTicked(BaseEvent):
    """A sign of life inside a phase: never stored, state must not depend on it."""

    kind: Literal["progress.ticked"] = "progress.ticked"
    step: int
    phase: Phase
    done: int
    total: int
    words: str = ""
    in_flight: dict[int, tuple[int, int]] = Field(default_factory=dict)
    """Group → (attempts done, model calls so far)."""
    hardware: dict[str, float] = Field(default_factory=dict)
    """`cpu/percent`, `memory/bytes`, `memory/total_bytes`, `tokens_per_s`."""
    cards: tuple[Card, ...] = ()
    """Those that CUDA shows, as they were at most two seconds ago; none on a machine without."""


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
    | CheckpointSaved
    | CheckpointPinned
    | CheckpointBranched
    | CheckpointDropped
    | CheckpointExported
    | WorkerRestarted
    | LogWritten
    | RunPaused
    | RunContinued
    | RunExtended
    | RunStopped
    | RunFailed
    | RunFinished
    | ProgressTicked
)

FINAL = (RunStopped, RunFailed, RunFinished)
"""The last event of a run, until it is resumed."""


class UnknownEvent(BaseEvent):
    """An event of a newer engine: kept for its `seq`, skipped by everything else."""

    kind: str


_ADAPTER: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="kind")])
_KINDS = frozenset(member.model_fields["kind"].default for member in Event.__args__)  # type: ignore[attr-defined]


def encode(event: BaseEvent) -> str:
    """One line of JSON."""
    return event.model_dump_json()


def decode(line: str | bytes) -> Event | UnknownEvent:
    """Raises ValueError where the line is not an event at all."""
    try:
        return _ADAPTER.validate_json(line)
    except ValidationError:
        event = UnknownEvent.model_validate_json(line)
        if event.kind in _KINDS:
            raise
        return event
