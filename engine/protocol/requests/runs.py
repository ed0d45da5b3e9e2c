"""Requests about engine, projects, runs and trajectories, with their responses. Requests are
imperative."""

from typing import Any, Literal

from pydantic import Field, model_validator

from engine.protocol.base import Request, Value
from engine.protocol.config.tracking import TrackerName
from engine.protocol.identifiers import Seq
from engine.protocol.records.demonstrations import SelectDemonstrations
from engine.protocol.records.judging import Verdict
from engine.protocol.records.labels import Label
from engine.protocol.records.machine.hardware import Card
from engine.protocol.records.runs import (
    GroupSummary,
    Scenario,
    Split,
    TrainingKind,
    Trajectory,
    TrajectorySummary,
)
from engine.protocol.requests.evaluation import SystemPrompt
from engine.protocol.requests.trust import AddressConfirmation, Confirmation


class EngineInfo(Value):
    version: str
    api: tuple[int, int]
    pid: int
    workspace: str
    started_at: float
    device: str
    """`CPU · 2 cores`, or the name of the GPU."""
    python: str
    memory_bytes: int
    memory_total_bytes: int
    living_runs: int
    build: str = ""
    """Fingerprint of the engine's source code: twelve hex digits."""
    host: str = ""
    """Host name of the engine's machine."""
    cards: tuple[Card, ...] = ()
    """Graphics cards of the engine's machine, in their current state."""
    free_bytes: int = 0
    """Free disk space of the workspace, in bytes."""


class Handshake(Value):
    """Line printed by an engine when it is ready for requests."""

    schema_version: int = 1
    pid: int
    start_time: float
    port: int
    api: tuple[int, int]
    workspace: str


class LendKeys(Request):
    """Pass API keys to the engine, which holds them in memory only."""

    keys: dict[str, str] = Field(default_factory=dict, repr=False)
    """Provider (`openai`) → API key for judges."""
    trackers: dict[str, str] = Field(default_factory=dict, repr=False)
    """Tracker (`wandb`) → API key."""


class TrackRun(Request):
    """Send the trackers all events of a run that they lack."""

    to: list[TrackerName] = Field(default_factory=list)
    """Trackers to send to; empty: all enabled ones of the project."""


class SaveRubric(Request):
    """Write the project's rubric; every change is kept as a version."""

    source: str
    who: str = ""
    read: str = ""
    """Fingerprint of the file as it was read, as in `EditProject`."""


class TryJudge(Request):
    """Score stored groups of a run with a rubric that need not be saved."""

    source: str
    """Text of the rubric, front matter included."""
    places: list[tuple[Split, int, int]] = Field(default_factory=list)
    """(split, step, group); empty: labelled groups first, then the newest."""
    count: int = Field(default=24, ge=1, le=1000)
    """Number of groups if `places` is empty."""
    models: tuple[str, ...] = ()
    """Judge models that replace the project's."""
    base_url: str | None = None


class CreateProject(Request):
    folder: str
    sample: str | None = None
    """Name of the sample to copy; None writes a small template project."""


class ImportRun(Request):
    """Import trajectories made elsewhere as a run."""

    source: str
    """Path on the engine's machine: an .art folder, the folder of one model in it, a JSONL file of
    chat messages, or a file of traces."""
    model: str = ""
    """Name of the model, if the folder contains several."""
    mask: bool = False
    """Replace e-mail addresses, telephone, card and account numbers, IP addresses and keys."""


class ImportScenarios(ImportRun):
    """Append the beginnings of conversations made elsewhere to a scenario file."""

    split: Split = "train"


class EditProject(Request):
    """Replace the whole text of project.toml, or set values by dotted key (None removes the
    key)."""

    toml: str | None = None
    values: dict[str, Any] | None = None
    read: str = ""
    """Fingerprint of the file as it was read; a changed file is not overwritten."""


class ScenarioPage(Value):
    total: int
    items: list[Scenario]
    fingerprint: str = ""
    """SHA-256 of the file that was read."""


class ProjectFiles(Value):
    """Fingerprints of a project's files by relative path; empty if there is no such file."""

    files: dict[str, str]


class WriteScenarios(Request):
    """Replace a scenario file by these objects, one per line."""

    items: list[dict[str, Any]]
    read: str = ""
    """Fingerprint of the file as it was read, as in `EditProject`."""


class StartWork(Request):
    """Fields of every request that starts a run."""

    project: str
    overrides: dict[str, Any] = Field(default_factory=dict)
    """Overrides by dotted key of project.toml: {"train.lr": 2e-4}."""
    queue: bool = False
    """Queue the run if the device is busy, instead of refusing it."""
    host: str = ""
    """Local name of the server to run on; empty is this machine."""
    lend_keys: bool = False
    """With `host`: pass the judges' API keys to the remote engine for this run, in memory.
    Otherwise the local machine calls the judges, and judging waits while it is disconnected."""
    keys_at_home: bool = False
    """Whether the local machine calls the judges and keeps the API keys."""
    provider_keys: dict[str, str] = Field(default_factory=dict, repr=False)
    """API keys by provider, for this run only, held in memory."""
    confirmed_addresses: list[AddressConfirmation] = Field(default_factory=list)
    """Addresses confirmed on the local machine for these keys."""
    key: str = ""
    """Idempotency key: the same key starts one run, however often it is sent."""


class StartRun(StartWork):
    """Start a training run, or a baseline measurement."""

    kind: TrainingKind = "train"
    origin: str = ""
    """Checkpoint to start from: one of this project, `RUN@STEP`, with that run's settings, or the
    folder of a LoRA adapter on the engine's machine."""
    replay: bool = False
    """With a checkpoint: train again on the trajectories stored after it."""


class StartEvaluation(StartWork):
    """Compare models on the scenarios of a project."""

    models: list[str] = Field(default_factory=list)
    """`base`, `RUN@STEP`, `RUN@best`, `RUN` (its newest checkpoint) or a LiteLLM model name
    (`openai/gpt-5.4`). The first is the reference of all comparisons. Empty: the base model and the
    best checkpoint of the newest run."""
    attempts: int | None = Field(default=None, ge=1, le=64)
    """Rollouts of each model per scenario; `evaluate.attempts` if None."""
    scenarios: str = "validation"
    """`train`, `validation`, or a file relative to the project."""
    systems: list[SystemPrompt] = Field(default_factory=list)
    """System prompt variants that replace the agent's system message, for every model."""
    seed: int | None = Field(default=None, ge=0, lt=2**31)
    """Sampling seed; `train.seed` if None."""
    judge: bool | None = None
    """Whether the project's judge contributes to the rewards; the project's setting if None."""
    demonstrate: SelectDemonstrations | None = None
    """Write good trajectories as demonstrations. Requires a single model, the teacher; scenarios
    paid for in an earlier such evaluation are not run again."""
    again: bool = False
    """With `demonstrate`: also run scenarios that were paid for before."""

    @model_validator(mode="after")
    def _check_teacher(self) -> "StartEvaluation":
        if self.demonstrate and self.host:
            raise ValueError(
                "a teacher evaluation runs on this machine only: leave the server empty"
            )
        return self


class Command(Request):
    """Control a run. `resume` also restarts a run without a process, `reviewed` ends a review,
    `keep` saves a checkpoint after this step."""

    action: Literal[
        "pause",
        "continue",
        "reviewed",
        "use_rubric",
        "stop_after_step",
        "stop_now",
        "resume",
        "extend",
        "keep",
    ]
    steps: int | None = Field(default=None, ge=0, lt=2**31)
    """For `extend`: the new number of planned steps."""
    rubric: str = ""
    """For `use_rubric`: text of the rubric, front matter included."""
    key: str = ""


class PinCheckpoint(Request):
    """Pin or unpin a checkpoint; retention rules never delete a pinned one."""

    pinned: bool = True
    note: str = ""


class TrajectoryQuery(Request):
    """Query for one page of the trajectories table; sorted and filtered in SQL."""

    split: Split | None = None
    step: Seq | None = None
    step_to: Seq | None = None
    """With `step`: last step of the range, inclusive."""
    group: Seq | None = None
    scenario_id: str | None = None
    contestant: str | None = None
    """Restrict to trajectories of this contestant of an evaluation."""
    state: Literal["all", "scored", "unscored", "truncated", "marked"] = "all"
    signal: bool | None = None
    """Restrict to trajectories of groups with (or without) signal."""
    labelled: bool | None = None
    """Restrict to trajectories with (or without) labels."""
    filter: str = ""
    """Filter expression, as described in `engine.protocol.requests.filters`."""
    sort: Literal[
        "recent", "step", "title", "reward", "advantage", "turns", "tokens", "duration"
    ] = "recent"
    descending: bool = True
    offset: Seq = 0
    limit: int = Field(default=100, ge=1, le=1000)


class ExportTrajectories(TrajectoryQuery):
    """Export trajectories as JSON lines: those with the ids in `ids`, or all that match the
    query, in order of arrival; sorting and paging are ignored."""

    ids: list[str] = Field(default_factory=list, max_length=20_000)
    tokens: bool = False
    """Include token ids and log-probs (`branches`), which are most of the bytes."""


class TrajectoryLine(Trajectory):
    """Line of an export: a trajectory with its run and the judge's reason. `branches` is empty
    unless tokens were asked for."""

    run_id: str = ""
    reason: str = ""


class TrajectoryFacts(Value):
    """Facts of a trajectory that are computed from its messages when it is stored."""

    prompt: str = ""
    """Beginning of the last message before the first turn."""
    answer: str = ""
    """Beginning of the first line of the last answer."""
    tools: dict[str, int] = Field(default_factory=dict)
    """Number of calls by name of the tool."""
    tool_calls: int = 0
    tool_errors: int = 0
    """Number of tool results that look like errors."""
    metrics: dict[str, float] = Field(default_factory=dict)
    """Metrics of the agent by name."""
    latency_s: float | None = None
    """Mean seconds of a model call; None if unknown."""


class TrajectoryRow(TrajectorySummary):
    """Row of the trajectories table."""

    facts: TrajectoryFacts = TrajectoryFacts()
    reason: str = ""
    """The judge's reason, of the verdict used in the reward."""


class TrajectoryPage(Value):
    total: int
    """Number of matching rows over all pages."""
    items: list[TrajectoryRow]


class FilterNames(Value):
    """Names that occur in the trajectories of a run, for the completion of filters; those that
    occur most often first."""

    parts: list[str] = Field(default_factory=list)
    metrics: list[str] = Field(default_factory=list)
    tools: list[str] = Field(default_factory=list)
    scenarios: list[str] = Field(default_factory=list)
    labels: list[str] = Field(default_factory=list)
    models: list[str] = Field(default_factory=list)


class GroupPage(Value):
    total: int
    items: list[GroupSummary]


class Siblings(Value):
    group: GroupSummary
    trajectories: list[Trajectory]
    verdicts: list[Verdict] = Field(default_factory=list)
    """Verdicts of all judges and rubrics, oldest first."""
    labels: list[Label] = Field(default_factory=list)
    """Labels including undone ones, oldest first."""


class Confirm(Request):
    """Store a person's trust or confirmation for this machine."""

    confirmation: Confirmation
