"""Requests to the engine and its responses. Requests are imperative."""

from typing import Any, Literal

from pydantic import Field, model_validator

from engine.protocol.base import Request, Value
from engine.protocol.config.tracking import TrackerName
from engine.protocol.identifiers import Seq
from engine.protocol.records.demonstrations import SelectDemonstrations
from engine.protocol.records.hardware import Card
from engine.protocol.records.judging import Verdict
from engine.protocol.records.labels import Label
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
    """`CPU · 2 cores` or the card's name."""
    python: str
    memory_bytes: int
    memory_total_bytes: int
    living_runs: int
    build: str = ""
    """Fingerprint of the engine's source code: twelve hex digits."""
    host: str = ""
    """Name of the engine's machine."""
    cards: tuple[Card, ...] = ()
    """Graphics cards of the engine's machine, in their current state."""
    free_bytes: int = 0
    """Free bytes on the disk of the workspace."""


class Handshake(Value):
    """The one line an engine prints when it is ready to be called."""

    schema_version: int = 1
    pid: int
    start_time: float
    port: int
    api: tuple[int, int]
    workspace: str


class LendKeys(Request):
    """API keys: held in the engine's memory, and nowhere else."""

    keys: dict[str, str] = Field(default_factory=dict, repr=False)
    """API keys of judges by provider, as `openai`."""
    trackers: dict[str, str] = Field(default_factory=dict, repr=False)
    """API keys of trackers by name, as `wandb`."""


class TrackRun(Request):
    """Send the trackers the events of a run that they do not have yet."""

    to: list[TrackerName] = Field(default_factory=list)
    """Trackers to send to; empty: all that the project has turned on."""


class SaveRubric(Request):
    """Write the project's rubric; a version is kept of every change."""

    source: str
    who: str = ""
    read: str = ""
    """Fingerprint of the file as it was read, as in `EditProject`."""


class TryJudge(Request):
    """Judge stored groups of a run, by words that need not be saved yet."""

    source: str
    """The rubric, front matter and all."""
    places: list[tuple[Split, int, int]] = Field(default_factory=list)
    """(split, step, group); none: the labelled ones first, then the newest."""
    count: int = Field(default=24, ge=1, le=1000)
    """Groups, where none are named."""
    models: tuple[str, ...] = ()
    """Judges in place of the project's."""
    base_url: str | None = None


class CreateProject(Request):
    folder: str
    sample: str | None = None
    """Copy this sample; without one, write a small project to fill in."""


class ImportRun(Request):
    """Make a run of attempts that were made elsewhere."""

    source: str
    """An .art folder, that of one model in it, or a JSONL file of chat messages; on the engine's
    machine."""
    model: str = ""
    """Which model, where the folder holds several."""


class EditProject(Request):
    """Either the whole text, or single values by dotted key (None removes the key)."""

    toml: str | None = None
    values: dict[str, Any] | None = None
    read: str = ""
    """Fingerprint of the file as it was read: another one is not overwritten."""


class ScenarioPage(Value):
    total: int
    items: list[Scenario]
    fingerprint: str = ""
    """SHA-256 of the file that was read."""


class ProjectFiles(Value):
    """Fingerprints of a project's files, by path in the project; empty where there is no file."""

    files: dict[str, str]


class WriteScenarios(Request):
    """Replace a scenario file by these objects, one a line."""

    items: list[dict[str, Any]]
    read: str = ""
    """Fingerprint of the file as it was read, as in `EditProject`."""


class StartWork(Request):
    """Fields of every request that starts a run."""

    project: str
    overrides: dict[str, Any] = Field(default_factory=dict)
    """Dotted keys of project.toml: {"train.lr": 2e-4}."""
    queue: bool = False
    """Wait where the device is busy; without, that is refused."""
    host: str = ""
    """Name here of the server to run on; empty is this machine."""
    lend_keys: bool = False
    """With `host`: its engine gets the judges' keys for this run, in memory. Without, judges are
    asked from here, and wait while this machine is away."""
    keys_at_home: bool = False
    """Judges are asked by the home machine, which keeps the keys."""
    lent: dict[str, str] = Field(default_factory=dict, repr=False)
    """Keys by provider, for this run only, in memory only."""
    lent_addresses: list[AddressConfirmation] = Field(default_factory=list)
    """Addresses that the person confirmed at home, for the keys that are lent."""
    key: str = ""
    """Idempotency key: the same key starts one run however often it is sent."""


class StartRun(StartWork):
    """Start a training run, or a baseline measurement."""

    kind: TrainingKind = "train"
    origin: str = ""
    """Start from a checkpoint of this project, `RUN@STEP`, with that run's settings; or from a LoRA
    adapter made elsewhere, a folder on the engine's machine."""
    replay: bool = False
    """With a checkpoint: train again on the attempts that are stored behind it."""


class StartEvaluation(StartWork):
    """Compare models on the scenarios of a project."""

    models: list[str] = Field(default_factory=list)
    """`base`, `RUN@STEP`, `RUN@best`, `RUN` (its newest checkpoint) or a model as litellm names it
    (`openai/gpt-5.4`). The first is the one that the others are compared with. None: the base
    model and the best checkpoint of the newest run."""
    attempts: int | None = Field(default=None, ge=1, le=64)
    """Rollouts of each model per scenario; `evaluate.attempts` when left out."""
    scenarios: str = "validation"
    """`train`, `validation`, or a file, relative to the project."""
    systems: list[SystemPrompt] = Field(default_factory=list)
    """Each takes the place of the agent's system message, for every model."""
    seed: int | None = Field(default=None, ge=0, lt=2**31)
    """`train.seed` when left out."""
    judge: bool | None = None
    """Whether the project's judge has part in the rewards; as the project says when left out."""
    demonstrate: SelectDemonstrations | None = None
    """Turn good rollouts into demonstrations. There is one model then, a teacher, and scenarios
    that an earlier such evaluation has paid for are not run again."""
    again: bool = False
    """With `demonstrate`: run also the scenarios that are paid for already."""

    @model_validator(mode="after")
    def _teachers_are_asked_from_here(self) -> "StartEvaluation":
        if self.demonstrate and self.host:
            raise ValueError("a teacher is asked from this machine: name no server")
        return self


class Command(Request):
    """Command to a run. `resume` also restarts one that is not living, `reviewed` ends a review,
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
    """For `use_rubric`: its source, front matter and all."""
    key: str = ""


class PinCheckpoint(Request):
    """Pin a checkpoint so that it is never deleted by the rules, or unpin it."""

    pinned: bool = True
    note: str = ""


class TrajectoryQuery(Request):
    """One page of the table: sorting, filtering and search happen in SQL."""

    split: Split | None = None
    step: Seq | None = None
    step_to: Seq | None = None
    """With `step`: the range of steps, both ends included."""
    group: Seq | None = None
    scenario_id: str | None = None
    contestant: str | None = None
    """In an evaluation: only attempts of this one."""
    state: Literal["all", "scored", "unscored", "truncated", "marked"] = "all"
    signal: bool | None = None
    """Only trajectories of groups that did (or did not) give a signal."""
    labelled: bool | None = None
    """Only trajectories that have (or do not have) a label."""
    search: str = ""
    sort: Literal[
        "recent", "step", "title", "reward", "advantage", "turns", "tokens", "duration"
    ] = "recent"
    descending: bool = True
    offset: Seq = 0
    limit: int = Field(default=100, ge=1, le=1000)


class TrajectoryPage(Value):
    total: int
    """Rows that match, over all pages."""
    items: list[TrajectorySummary]


class GroupPage(Value):
    total: int
    items: list[GroupSummary]


class Siblings(Value):
    group: GroupSummary
    trajectories: list[Trajectory]
    verdicts: list[Verdict] = Field(default_factory=list)
    """Verdicts of all judges and rubrics, oldest first."""
    labels: list[Label] = Field(default_factory=list)
    """Labels, oldest first, with those that were undone."""


class Confirm(Request):
    """Store what the person trusts or confirms, once and for this machine."""

    confirmation: Confirmation
