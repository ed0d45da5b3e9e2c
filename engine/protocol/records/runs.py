"""Records of scenarios, trajectories, groups, runs and checkpoints."""

from typing import Any, Literal

from pydantic import Field

from engine.protocol.base import Value
from engine.protocol.config.project import ProjectConfig
from engine.protocol.config.sweep import SettingValue
from engine.protocol.problems import Problem
from engine.protocol.records.conversations import AgentConversation, Branch, Message, ModelCall
from engine.protocol.records.demonstrations import SupervisedPlan
from engine.protocol.records.run_notes import RunNotes
from engine.protocol.requests.evaluation import EvaluationPlan

Split = Literal["train", "validation"]
RunState = Literal[
    "damaged",
    "queued",
    "starting",
    "running",
    "reviewing",
    "pausing",
    "paused",
    "stopping",
    "stopped",
    "failed",
    "finished",
]
RunKind = Literal[
    "train", "sft", "outside", "baseline", "imported", "evaluation", "arena", "writing"
]
"""Kind of a run. `outside`: a script with its own training loop makes the rollouts and decides when
to train."""
TrainingKind = Literal["train", "sft", "baseline"]
"""Kinds of runs that `StartRun` starts; the others have requests of their own."""
Phase = Literal[
    "loading", "warming_up", "validating", "rolling_out", "reviewing", "training", "publishing"
]

TRAINING_KINDS: frozenset[str] = frozenset({"train", "sft", "outside"})
"""Kinds of runs that train weights."""
ACTIVE_STATES: frozenset[str] = frozenset(
    {"starting", "running", "reviewing", "pausing", "paused", "stopping"}
)
"""Run states that have a process."""


class Scenario(Value):
    """Task instance: a JSON object; `id` and `title` are generated or taken from the object."""

    id: str
    title: str
    data: dict[str, Any]
    """The object exactly as written in the file; passed to the agent."""


class Unlabelled(Value):
    """Reward of a trajectory before any label, for undo."""

    reward: float | None
    parts: dict[str, float] = Field(default_factory=dict)
    problem: Problem | None = None


CutBy = Literal["", "max_tokens", "agent", "context"]


class TrajectorySummary(Value):
    """Row of the trajectories table."""

    id: str
    split: Split
    step: int
    """Step that trained on it; for validation, the number of updates of the policy."""
    group: int
    index: int
    """Index within its group, from 0."""
    scenario_id: str
    title: str
    reward: float | None
    """Reward; None is unscored, and `problem` says why. Invalid rewards are never stored as 0."""
    advantage: float | None = None
    parts: dict[str, float] = Field(default_factory=dict)
    problem: Problem | None = None
    turns: int = 0
    sampled_tokens: int = 0
    truncated: bool = False
    """Whether a completion was truncated by a token limit."""
    duration_s: float = 0.0
    awaits_judge: bool = False
    """Whether a valid trajectory still waits for its score from the judge."""
    marked: bool = False
    """Whether the trajectory seems to address its grader and should be reviewed."""
    labels: tuple[str, ...] = ()
    """Kinds of the labels in force: `best`, `veto`, `note` …"""
    fields: dict[str, float | str] = Field(default_factory=dict)
    """Values of custom label fields in force (numbers and choices), by name."""
    unlabelled: Unlabelled | None = None
    """Values before any label; set if a label has changed reward, parts or problem."""
    contestant: str = ""
    """Model that an evaluation ran, with the variant of the system prompt."""
    provider: str = ""
    """LiteLLM name of the provider's model that made the trajectory; its tokens are unknown, so
    there are no branches. Empty if the policy sampled it."""
    cost_usd: float | None = None
    """Cost of the provider's calls in US dollars, an upper bound if the provider did not report it;
    None without a provider."""


class Trajectory(TrajectorySummary):
    """Complete record of one rollout."""

    cut_by: CutBy = ""
    """Limit that truncated the trajectory: train.max_tokens, one in the agent's own request, or
    model.max_context; empty if none did, or if unknown."""
    messages: list[Message] = Field(default_factory=list)
    branches: list[Branch] = Field(default_factory=list)
    conversations: list[AgentConversation] = Field(default_factory=list)
    """Conversations of the agent, the main one first, the others in the order in which they began;
    empty if there is only one, which is trained."""
    metrics: dict[str, float] = Field(default_factory=dict)
    tools: list[dict[str, Any]] = Field(default_factory=list)
    output: str = ""
    """Printed output of the agent, limited in size."""
    started_at: float = 0.0
    """Unix time in seconds; 0 if unknown."""
    policy_version: int = 0
    """Number of updates of the weights that sampled it."""
    seed: int = 0
    calls: list[ModelCall] = Field(default_factory=list)
    """Calls of a provider's model, in order; those of the policy are the turns of the branches."""

    @property
    def trained_branches(self) -> list[Branch]:
        """Branches with sampled tokens whose conversation is trained."""
        ignored = {n for n, one in enumerate(self.conversations) if not one.trained}
        return [b for b in self.branches if b.spans and b.conversation not in ignored]

    @property
    def model_calls(self) -> list[ModelCall]:
        """Model calls in the order in which they ended."""
        found = [*self.calls]
        for branch in self.branches:
            for place, (start, end) in enumerate(branch.turns):
                start_s, end_s = branch.times[place] if place < len(branch.times) else (0.0, 0.0)
                found.append(
                    ModelCall(
                        start_s=start_s,
                        end_s=end_s,
                        prompt_tokens=start,
                        completion_tokens=end - start,
                        conversation=branch.conversation,
                    )
                )
        return sorted(found, key=lambda call: call.end_s)


class GroupSummary(Value):
    """Trajectories of one scenario in one step."""

    split: Split
    step: int
    group: int
    scenario_id: str
    title: str
    rewards: list[float | None]
    advantages: list[float | None] = Field(default_factory=list)
    mean: float | None
    """Mean of the scored trajectories; None if none is scored."""
    std: float | None
    signal: bool
    """False if all trajectories of the group have the same reward, so that it contributes no
    gradient."""


class Interval(Value):
    """Mean with its 95 % confidence interval."""

    mean: float
    low: float
    high: float
    count: int
    """Number of independent scenarios."""


class Checkpoint(Value):
    step: int
    path: str = Field(pattern=r"^checkpoints/step-\d{6,12}$")
    """Path relative to the run folder."""
    bytes: int
    at: float
    metrics: dict[str, float] = Field(default_factory=dict)
    adapter: str = ""
    """SHA-256 of the adapter weights."""


KeptBy = Literal["newest", "best", "pinned", "exported", "branched", "start"]
"""Why a checkpoint is kept. `start`: the initial weights of a branch."""


class KeptCheckpoint(Value):
    """Checkpoint as shown in a list."""

    checkpoint: Checkpoint
    state: Literal["whole", "damaged", "elsewhere"]
    """`damaged`: files are missing or have another size (hashes are compared before use).
    `elsewhere`: the files are on the run's server and not on this machine."""
    kept_by: tuple[KeptBy, ...] = ()
    """Reasons to keep it; empty if it will be deleted soon."""
    note: str = ""
    """Note of the person who pinned it."""
    branches: tuple[str, ...] = ()
    """Names of the runs branched from it."""
    validation: Interval | None = None
    win_rate: Interval | None = None
    """Win rate against the run's first validation, if a judge compares them."""
    loss: float | None = None
    """Held-out loss; SFT runs only."""


class Parent(Value):
    """Origin of a run's initial weights."""

    name: str
    """Name of the run, or of the folder of an adapter."""
    run_id: str = ""
    """Id of the run; empty for an adapter made elsewhere."""
    step: int = 0
    replay: bool = False
    """Whether stored trajectories of the parent are trained on again instead of sampling new
    ones."""
    adapter: str = ""
    """SHA-256 of the adapter weights; empty if there were none."""
    weights_only: bool = False
    """Whether only the weights were taken: steps count from 0."""

    @property
    def begins(self) -> int:
        """Step from which the new run continues counting; 0 if only weights were taken over."""
        return 0 if self.weights_only else self.step


class RunOfSweep(Value):
    """Place of a run in a sweep."""

    sweep: str
    """Id of the sweep."""
    trial: int
    """Number of the combination of values, from 1."""
    seed: int
    values: dict[str, SettingValue]
    """Swept settings of this run by dotted key."""


class RunSpec(Value):
    """Everything a run was started with (`run.json`); never changed afterwards."""

    schema_version: int = 1
    id: str
    name: str
    """Two words, easier to remember than the id."""
    kind: RunKind = "train"
    project: str
    """Name of the project at the start of the run."""
    started_at: float
    config: ProjectConfig
    model_path: str
    rubric: str = ""
    """Text of the judge's rubric at the start of the run; empty without a judge."""
    versions: dict[str, str] = Field(default_factory=dict)
    parent: Parent | None = None
    evaluation: EvaluationPlan | None = None
    """Models and scenarios of an evaluation; None for other runs."""
    source: str = ""
    """Library of an external script, as `openpipe-art 0.5.18`."""
    supervised: SupervisedPlan | None = None
    """Demonstrations of an SFT run; None for other runs."""
    keys_at_home: bool = False
    """Whether the local machine calls the judges for a remote run; judging waits while it is
    disconnected."""
    sweep: RunOfSweep | None = None
    """Sweep that started the run, if any."""

    @property
    def updates(self) -> int:
        """Number of steps (of an SFT run: updates) planned at the start; 0 for an evaluation, and
        for a script's run, whose number only the script knows."""
        if self.supervised:
            return self.supervised.updates
        return 0 if self.kind in ("evaluation", "outside") else self.config.train.steps


class RunSummary(Value):
    """Row of a list of runs."""

    id: str
    name: str
    kind: RunKind
    project: str
    project_path: str
    path: str
    host: str = ""
    """Local name of the server that the run is on; its files here are a mirror."""
    state: RunState
    step: int
    """Number of finished steps."""
    steps: int
    """Number of planned steps; 0 if only an external script knows."""
    started_at: float
    changed_at: float
    trained_s: float = 0.0
    """Seconds in which the run worked, without pauses, reviews and interruptions."""
    idle_s: float = 0.0
    """Seconds between its start and its last event in which it was paused, waited for a review, or
    was interrupted."""
    device: str = ""
    model: str = ""
    source: str = ""
    parent: Parent | None = None
    sweep: RunOfSweep | None = None
    """Sweep that started the run, if any."""
    rewards: list[float | None] = Field(default_factory=list)
    """Mean reward of each finished step."""
    losses: list[float] = Field(default_factory=list)
    """Held-out losses of an SFT run, one per measurement."""
    validation: Interval | None = None
    baseline: Interval | None = None
    """First validation, before any update."""
    win_rate: Interval | None = None
    """Win rate of the last validation against the first, if a judge compares them."""
    win_rates: list[float] = Field(default_factory=list)
    """Win rates of all validations against the first, by step, if a judge compares them."""
    best: Interval | None = None
    """Best validation: highest win rate if a judge compares them, else highest mean reward."""
    best_step: int = 0
    """Step of the best validation."""
    judged: bool = False
    """Whether a judge scores: rewards are then relative to their group, and no measure of
    progress."""
    trajectories: int = 0
    unscored: int = 0
    contestants: list[str] = Field(default_factory=list)
    """Names of the models of an evaluation."""
    attempts: int = 0
    """Number of planned rollouts of an evaluation; 0 for other runs."""
    usd: float = 0.0
    """Cost of all calls to judges and providers in US dollars; unanswered ones at their maximum."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Settings that differ from their defaults, by dotted key of project.toml."""
    notes: RunNotes = RunNotes()
    problem: Problem | None = None
    """Why the run failed."""
    seq: int = Field(default=0, ge=0)
    """Sequence number of the last event included in this row."""

    def progress_curve(self) -> list[float]:
        """Return the values that measure progress, in order: held-out losses of an SFT run, win
        rates of a run with a judge, else mean rewards. Rewards of a judge are relative to their
        group and measure none."""
        if self.losses or self.judged:
            return list(self.losses or self.win_rates)
        return [reward for reward in self.rewards if reward is not None]


class SplitInfo(Value):
    """Number of scenarios in a file, and problems found in it."""

    split: Split
    path: str
    count: int = 0
    problems: list[Problem] = Field(default_factory=list)


class ImportedScenarios(Value):
    """Result of an import of conversations as scenarios."""

    split: Split
    path: str
    """Scenario file that was extended."""
    new: int
    """Number of scenarios added."""
    repeated: int
    """Number of conversations whose beginning is a scenario already, of this import or of the
    project."""
    notes: list[str] = Field(default_factory=list)
    """Sentences about omitted content and masked values."""


class ProjectView(Value):
    """Project folder as shown in the studio; one with errors opens too, with its problems."""

    path: str
    name: str
    description: str = ""
    config: ProjectConfig | None
    """None if project.toml cannot be parsed."""
    toml: str = ""
    problems: list[Problem] = Field(default_factory=list)
    splits: list[SplitInfo] = Field(default_factory=list)
    runs: list[RunSummary] = Field(default_factory=list)
    agent_tools: list[str] = Field(default_factory=list)
    trusted: bool = True
    """False for a project from another source: the engine neither runs it nor sends its data until
    the person trusts it."""
    files: dict[str, str] = Field(default_factory=dict)


class Alert(Value):
    """Condition of the project (`alerts.when`) that holds, and the values that meet it."""

    condition: str
    words: str


class Finding(Value):
    """Diagnosis in plain words with its evidence."""

    code: str
    title: str
    words: str
    suggestion: str = ""
    where: str = ""
    """View to open: `group:3`, `unscored`, `truncated`, `marked`, `chart:gap`."""
    action: str = ""
    """Suggested action: `pause`, or `veto:METRIC` for the next run."""
