"""Records that the engine stores and shows: scenarios, trajectories, groups, runs, checkpoints."""

from typing import Any, Literal

from pydantic import Field

from engine.protocol.base import Value
from engine.protocol.config.project import ProjectConfig
from engine.protocol.problems import Problem
from engine.protocol.records.demonstrations import SupervisedPlan
from engine.protocol.records.hardware import VramPlan
from engine.protocol.requests.evaluation import EvaluationPlan

Split = Literal["train", "validation"]
RunState = Literal[
    "damaged",
    "queued",
    "starting",
    "running",
    "reviewing",
    "paused",
    "stopping",
    "stopped",
    "failed",
    "finished",
]
RunKind = Literal[
    "train", "sft", "outside", "baseline", "imported", "evaluation", "arena", "writing"
]
"""`outside`: a script with its own training loop makes the rollouts, and says when to train."""
TrainingKind = Literal["train", "sft", "baseline"]
"""Kinds of runs that `StartRun` starts; the others have requests of their own."""
Phase = Literal[
    "loading", "warming_up", "validating", "rolling_out", "reviewing", "training", "publishing"
]

TRAINING_KINDS: frozenset[str] = frozenset({"train", "sft", "outside"})
"""Kinds of runs that have weights of their own."""
ACTIVE_STATES: frozenset[str] = frozenset(
    {"starting", "running", "reviewing", "paused", "stopping"}
)
"""Run states with a process behind them."""


class Scenario(Value):
    """One task instance: a JSON object; `id` and `title` are ours or taken from the object."""

    id: str
    title: str
    data: dict[str, Any]
    """The object exactly as written in the file: what the agent receives."""


class Message(Value):
    """One chat message in the OpenAI form."""

    role: str
    content: str = ""
    tool_calls: list[dict[str, Any]] = Field(default_factory=list)
    tool_call_id: str | None = None
    name: str | None = None


class Branch(Value):
    """One unbroken token sequence of a trajectory: prompt, completions and what came between.

    All lists but `spans` have one entry per token. A turn whose prompt extends the tokens so far
    stays in the branch; a template that rewrites history starts the next one.
    """

    tokens: list[int]
    spans: list[tuple[int, int]]
    """Half-open token ranges that the policy sampled, in order: the only ones that are trained."""
    logprobs: list[float]
    """Natural log-probabilities recorded at sampling, one per sampled token, spans joined."""
    pieces: list[str] = Field(default_factory=list)
    """Text of each token, for reading only."""
    choice: int = 0
    """Index from 0 of the first choice of this branch among the choices of one request (`n` above
    1)."""
    times: list[tuple[float, float]] = Field(default_factory=list)
    """Seconds from the beginning of the rollout at which each span was requested and complete;
    empty where they were not recorded."""

    rewards: list[float] = Field(default_factory=list)
    """Reward that the agent gave each span, times the weight of the part `turns`; empty where it
    gave none. The reward of the trajectory includes them already."""

    @property
    def sampled(self) -> int:
        return sum(end - start for start, end in self.spans)


class Unlabelled(Value):
    """Reward of a rollout before any label, for an undo."""

    reward: float | None
    parts: dict[str, float] = Field(default_factory=dict)
    problem: Problem | None = None


CutBy = Literal["", "max_tokens", "agent", "context"]


class TrajectorySummary(Value):
    """A row of the trajectories table."""

    id: str
    split: Split
    step: int
    """The step that trained on it; for validation, the number of updates behind the policy."""
    group: int
    index: int
    """Position among its siblings, from 0."""
    scenario_id: str
    title: str
    reward: float | None
    """None is unscored, and `problem` says why: invalid is never zero."""
    advantage: float | None = None
    parts: dict[str, float] = Field(default_factory=dict)
    problem: Problem | None = None
    turns: int = 0
    sampled_tokens: int = 0
    truncated: bool = False
    """A completion hit its token limit."""
    duration_s: float = 0.0
    awaits_judge: bool = False
    """Whether a valid rollout still waits for its score from the judge."""
    marked: bool = False
    """Whether the rollout seems to address its grader, and should be reviewed."""
    labels: tuple[str, ...] = ()
    """Kinds of the labels in force: `best`, `veto`, `note` …"""
    unlabelled: Unlabelled | None = None
    """Values before any label; set where a label has changed reward, parts or problem."""
    contestant: str = ""
    """Model that an evaluation ran, with the variant of the system prompt."""
    provider: str = ""
    """Name of the model, as litellm has it, that a provider ran for this attempt: its tokens are
    not known, so there are no branches. Empty where the policy sampled."""
    cost_usd: float | None = None
    """Cost of the provider's calls in USD, an upper bound where the provider did not report it;
    None without a provider."""


class Trajectory(TrajectorySummary):
    """The whole record of one rollout."""

    cut_by: CutBy = ""
    """Limit that truncated the rollout: train.max_tokens, one in the agent's own request, or
    model.max_context; empty where none did, or where it is not known."""
    messages: list[Message] = Field(default_factory=list)
    branches: list[Branch] = Field(default_factory=list)
    metrics: dict[str, float] = Field(default_factory=dict)
    tools: list[dict[str, Any]] = Field(default_factory=list)
    output: str = ""
    """What the agent printed, capped."""
    begun_at: float = 0.0
    """Unix seconds; 0 where nobody has noted it."""
    policy_version: int = 0
    """Number of updates behind the weights that sampled it."""
    seed: int = 0


class GroupSummary(Value):
    """Siblings of one scenario in one step."""

    split: Split
    step: int
    group: int
    scenario_id: str
    title: str
    rewards: list[float | None]
    advantages: list[float | None] = Field(default_factory=list)
    mean: float | None
    """Mean of the scored siblings; None where none is scored."""
    std: float | None
    signal: bool
    """False where all trajectories of the group have the same reward: no gradient."""


class Interval(Value):
    """A mean with its 95 % confidence interval."""

    mean: float
    low: float
    high: float
    count: int
    """Independent scenarios behind it."""


class Checkpoint(Value):
    step: int
    path: str = Field(pattern=r"^checkpoints/step-\d{6,12}$")
    """Relative to the run folder."""
    bytes: int
    at: float
    metrics: dict[str, float] = Field(default_factory=dict)
    adapter: str = ""
    """SHA-256 of its weights."""


KeptBy = Literal["newest", "best", "pinned", "exported", "branched", "start"]
"""`start`: the weights that a branch began with."""


class KeptCheckpoint(Value):
    """A checkpoint as its list shows it."""

    checkpoint: Checkpoint
    state: Literal["whole", "damaged", "elsewhere"]
    """`damaged`: files are missing or of another size; hashes are compared before it is used.
    `elsewhere`: the server that the run lives on has them, and this machine has not."""
    kept_by: tuple[KeptBy, ...] = ()
    """Reasons why the checkpoint is kept; empty where it will be deleted soon."""
    note: str = ""
    """Note that a person wrote when pinning the checkpoint."""
    branches: tuple[str, ...] = ()
    """Names of the runs that branched from this checkpoint."""
    validation: Interval | None = None
    loss: float | None = None
    """Loss on the held-out demonstrations; SFT runs only."""


class Parent(Value):
    """Origin of a run's first weights."""

    name: str
    """Name of the run, or of the folder that an adapter was loaded from."""
    run_id: str = ""
    """Empty for an adapter that was made elsewhere."""
    step: int = 0
    replay: bool = False
    """The parent's stored attempts are trained on again; none is sampled."""
    adapter: str = ""
    """SHA-256 of the adapter's weights; empty where there were none yet."""
    weights_only: bool = False
    """Whether only the weights were taken over: steps count from 0."""

    @property
    def begins(self) -> int:
        """The step of the run itself that its first weights have."""
        return 0 if self.weights_only else self.step


class RunSpec(Value):
    """`run.json`: everything a run was started with; never changed afterwards."""

    schema_version: int = 1
    id: str
    name: str
    """Two words, easier to say than the id."""
    kind: RunKind = "train"
    project: str
    """Name of the project when the run started."""
    started_at: float
    config: ProjectConfig
    model_path: str
    rubric: str = ""
    """The judge's rubric as it was when the run started; empty without a judge."""
    versions: dict[str, str] = Field(default_factory=dict)
    parent: Parent | None = None
    evaluation: EvaluationPlan | None = None
    """Models and scenarios that are compared, where the run is an evaluation."""
    source: str = ""
    """Library that the script of an outside run uses, as `openpipe-art 0.5.18`."""
    supervised: SupervisedPlan | None = None
    """Demonstrations that an SFT run trains on."""
    keys_at_home: bool = False
    """Whether the home machine asks the judges; they wait while it is disconnected."""

    @property
    def updates(self) -> int:
        """Number of steps planned at the start; 0 where there are none, or only the script
        knows."""
        if self.supervised:
            return self.supervised.updates
        return 0 if self.kind in ("evaluation", "outside") else self.config.train.steps


class RunSummary(Value):
    """A run as lists show it."""

    id: str
    name: str
    kind: RunKind
    project: str
    project_path: str
    path: str
    host: str = ""
    """Name here of the server that the run lives on; the files here are a replica."""
    state: RunState
    step: int
    """Updates done."""
    steps: int
    """Updates planned; 0 where only a script outside knows."""
    started_at: float
    changed_at: float
    device: str = ""
    model: str = ""
    source: str = ""
    parent: Parent | None = None
    rewards: list[float | None] = Field(default_factory=list)
    """Mean reward of each finished step."""
    losses: list[float] = Field(default_factory=list)
    """Loss of an SFT run on the held-out demonstrations, each time it was measured."""
    validation: Interval | None = None
    baseline: Interval | None = None
    """The first validation: before any update."""
    trajectories: int = 0
    unscored: int = 0
    contestants: list[str] = Field(default_factory=list)
    """Names of the models that an evaluation compares."""
    attempts: int = 0
    """Number of planned rollouts of an evaluation; other runs do not know it beforehand."""
    problem: Problem | None = None
    """Reason why the run failed."""
    seq: int = Field(default=0, ge=0)
    """Number of the last event that this row accounts for."""


class SplitInfo(Value):
    """Number of scenarios in a file, and the problems found in it."""

    split: Split
    path: str
    count: int = 0
    problems: list[Problem] = Field(default_factory=list)


class ProjectView(Value):
    """A project folder as the studio shows it; a broken one still opens, with its problems."""

    path: str
    name: str
    description: str = ""
    config: ProjectConfig | None
    """None where project.toml does not parse."""
    toml: str = ""
    problems: list[Problem] = Field(default_factory=list)
    splits: list[SplitInfo] = Field(default_factory=list)
    runs: list[RunSummary] = Field(default_factory=list)
    agent_tools: list[str] = Field(default_factory=list)
    trusted: bool = True
    """False for a project from elsewhere: the engine runs and sends nothing of it until the person
    trusts it."""
    files: dict[str, str] = Field(default_factory=dict)


class Forecast(Value):
    """Memory, disk space and time that a run will need, estimated before it starts."""

    weights_bytes: int
    """The model, and the program that runs it."""
    sampler_bytes: int
    """Key-value cache of the attempts that are sampled at once."""
    adapter_bytes: int
    """Adapter, gradients and optimizer state."""
    activations_bytes: int
    available_bytes: int
    step_low_s: float
    step_high_s: float
    steps: int
    disk_bytes: int = 0
    """Bytes of all checkpoints that the retention rules keep at the end."""
    disk_free_bytes: int = 0
    kept: int = 0
    """Number of those checkpoints."""
    measured: bool
    """True where step times come from an earlier run of this project on this machine."""
    vram: VramPlan | None = None
    """Memory plan of the graphics cards, where the run uses some."""


class Finding(Value):
    """A plain-words diagnosis with its evidence."""

    code: str
    title: str
    words: str
    suggestion: str = ""
    where: str = ""
    """View to open: `group:3`, `unscored`, `truncated`, `marked`, `chart:gap`."""
    action: str = ""
    """Action that is offered: `pause`, or `veto:METRIC` for the next run."""
