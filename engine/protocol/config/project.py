"""What a person writes in `project.toml`: typed, few knobs, every field documented below itself.

The documentation of a field is its tooltip in the studio; its bounds are the limits of the control.
"""

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from engine.protocol.addresses import check_model
from engine.protocol.config.algorithm import Algorithm
from engine.protocol.config.section import Section
from engine.protocol.config.tracking import TrackConfig


class ModelConfig(Section):
    """What learns."""

    name: str = "smollm2-135m-instruct"
    """A name from `engine models list`, a Hugging Face id, or a folder with safetensors."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Precision of the frozen weights; `auto` takes bfloat16 where the processor has it."""
    max_context: Annotated[int, Field(ge=64, le=131_072)] = 1024
    """Longest prompt plus completion, in tokens."""
    rank: Annotated[int, Field(ge=1, le=512)] = 16
    """Rank of the LoRA adapter on every linear layer."""
    alpha: Annotated[float, Field(gt=0, le=1024)] = 32
    """LoRA scale: the update is multiplied by alpha / rank."""


class BackendConfig(Section):
    """The programs that sample and train, and the cards they work on."""

    trainer: Literal["torch", "unsloth"] = "torch"
    """`torch` runs anywhere; `unsloth` loads models in 4 or 8 bits and trains them with its own
    kernels on NVIDIA cards."""
    sampler: Literal["torch", "vllm"] = "torch"
    """`torch` samples in the trainer's process; `vllm` in a server of its own, many times faster on
    a GPU."""
    weights: Literal["full", "8bit", "4bit"] = "full"
    """What the frozen weights are stored in; `full` is the precision of model.dtype. Fewer bits
    need Unsloth and an NVIDIA card."""
    recompute: bool = False
    """Compute each layer again on the way back instead of keeping what it computed: a third slower,
    a fraction of the memory, the same result."""
    processes: Annotated[int, Field(ge=1, le=8)] = 1
    """Trainers that share each batch, one a card."""
    memory_share: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Share of the card's memory that vLLM takes; worked out from the forecast when empty."""
    sleep: Literal["auto", "off", "cache", "all"] = "auto"
    """What vLLM gives back to the card while it trains: its `cache` of keys and values, or `all`;
    `auto` gives back what the forecast says is needed."""
    share_card: bool = False
    """Start also where other programs hold memory that the forecast counts on."""

    @model_validator(mode="after")
    def _trainer_loads_the_weights(self) -> "BackendConfig":
        if self.weights != "full" and self.trainer == "torch":
            raise ValueError(
                f"has weights = {self.weights} with trainer = torch, which loads full weights "
                "only: set backend.trainer to unsloth, or backend.weights to full"
            )
        return self


class AgentConfig(Section):
    """The user's code, which only needs the address and key it is given."""

    source: Literal["project", "outside"] = "project"
    """Who makes the attempts: the project's own agent, or `outside`, a script with a loop of its
    own (OpenPipe's ART) that says itself when a step begins."""
    file: str = "agent.py"
    """Python file with `rollout(scenario, model)`, relative to the project."""
    command: str | None = None
    """Instead of a file: a command run once per attempt, with OPENAI_BASE_URL, OPENAI_API_KEY and
    ATELIER_SCENARIO (JSON) in its environment; its last line of output is the result as JSON."""
    python: str | None = None
    """Interpreter for the file; the engine's own when empty."""
    requirements: str | None = None
    """Packages that the agent imports: a requirements file of pip's, relative to the project. They
    go into an environment of their own, when you say so; its Python runs the agent."""
    workers: Annotated[int, Field(ge=1, le=64)] = 1
    """Agent processes; each runs many attempts at once."""
    concurrency: Annotated[int, Field(ge=1, le=1024)] = 64
    """Attempts running at the same time over all workers."""
    timeout_s: Annotated[float, Field(gt=0, le=86_400)] = 120
    """Wall-clock limit of one attempt, in seconds."""
    max_turns: Annotated[int, Field(ge=1, le=1000)] = 32
    """Model calls one attempt may make."""
    max_output_bytes: Annotated[int, Field(ge=1024)] = 1_000_000
    """Most that one attempt may print or return."""

    @model_validator(mode="after")
    def _one_interpreter(self) -> "AgentConfig":
        if self.python and self.requirements:
            raise ValueError(
                "has both python and requirements: the packages have an interpreter of their own, "
                "so empty one of the two"
            )
        return self


class ScenariosConfig(Section):
    """The tasks it practises, and the ones it is tested on: JSON Lines, one scenario a line."""

    train: str = "scenarios/train.jsonl"
    """Scenarios for training, relative to the project."""
    validation: str | None = "scenarios/validation.jsonl"
    """Held-out scenarios; leave empty for none."""


class Constraint(Section):
    """A hard rule on one reward part or metric."""

    part: str
    """Name of the reward part or metric it looks at."""
    above: float | None = None
    """Broken when the value is above this."""
    below: float | None = None
    """Broken when the value is below this."""
    effect: Literal["veto", "penalty"] = "veto"
    """`veto` sets the reward to `value`, `penalty` subtracts `value`."""
    value: float = 0.0
    """What the effect sets or subtracts."""


class RewardConfig(Section):
    """Who says what is good: named parts are weighted and added, then constraints apply."""

    weights: dict[str, float] = Field(default_factory=dict)
    """Weight by part name; a part that is not named weighs 1."""
    required: tuple[str, ...] = ()
    """Parts without which an attempt is unscored. Empty: at least one part of any name."""
    constraints: tuple[Constraint, ...] = ()
    """Vetoes and penalties, applied in order after the sum."""


class JudgeConfig(Section):
    """The LLM judge: it compares the attempts of a group by the rubric (RULER)."""

    enabled: bool = False
    """Ask a judge to compare the attempts of each group."""
    models: tuple[str, ...] = ()
    """Judges as litellm names them: `openai/gpt-5.4`, `anthropic/…`, `ollama_chat/…`."""
    base_url: str | None = None
    """Address of an OpenAI-compatible server, for models named `openai/…`."""
    rubric: str = "rubric.md"
    """What a good attempt is, in plain words, relative to the project."""
    local: bool = False
    """Let a small model judge routine steps on this machine, for nothing: it is fitted on your
    labels and on the verdicts of the judges named above."""
    local_every: Annotated[int, Field(ge=1)] = 5
    """Steps from one look of the judges named above to the next; between, the local one judges."""
    local_least: Annotated[float, Field(ge=0, le=1)] = 0.7
    """Share of held-out pairs that the local judge must put in order before it may judge."""
    canary_every: Annotated[int, Field(ge=0)] = 10
    """Steps between two planted attempts that show whether the judge can be fooled (one question
    each); 0 plants none."""
    prompt: Literal["atelier", "art"] = "atelier"
    """`art` asks exactly as ART's RULER does, once and in the order of the attempts."""
    combine: Literal["mean", "median", "majority"] = "mean"
    """What becomes of the scores of several judges."""
    passes: Annotated[int, Field(ge=1, le=9)] = 3
    """Most times a judge looks at a group, in another order each; it stops when two agree."""
    stable: Annotated[float, Field(ge=-1, le=1)] = 0.8
    """Kendall's τ of two passes from which they agree."""
    temperature: Annotated[float, Field(ge=0, le=2)] = 0.0
    """Of the judge."""
    max_tokens: Annotated[int, Field(ge=64, le=131_072)] = 4096
    """Most tokens of a judge's answer, its thoughts included."""
    max_chars: Annotated[int, Field(ge=500)] = 24_000
    """Characters of one attempt that are shown; the middle of long messages is left out."""
    timeout_s: Annotated[float, Field(gt=0, le=3600)] = 120
    """Seconds for one answer."""
    retries: Annotated[int, Field(ge=0, le=20)] = 4
    """Tries after one that failed by load, server or network."""
    concurrency: Annotated[int, Field(ge=1, le=256)] = 8
    """Questions at the same time."""
    budget_usd: Annotated[float, Field(ge=0)] | None = 5.0
    """Dollars that a run may spend on judging; attempts beyond it stay unscored."""
    price_prompt: Annotated[float, Field(ge=0)] | None = None
    """Dollars for a million tokens asked, where the price list lacks the model."""
    price_completion: Annotated[float, Field(ge=0)] | None = None
    """Dollars for a million tokens answered, where the price list lacks the model."""

    @field_validator("models")
    @classmethod
    def _models_are_names(cls, models: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(check_model(model) for model in models)

    @model_validator(mode="after")
    def _somebody_judges(self) -> "JudgeConfig":
        if self.enabled and not (self.models or self.local):
            raise ValueError("is enabled without a model: name one in judge.models")
        return self


class WarmupConfig(Section):
    """Supervised epochs on demonstrations before the first step."""

    file: str = "demonstrations.jsonl"
    """Chat messages in the OpenAI format, one demonstration a line, relative to the project."""
    gold: bool = True
    """Also learn from the attempts that you pinned as gold (gold.jsonl)."""
    epochs: Annotated[int, Field(ge=1, le=100)] = 1
    """Passes over the demonstrations."""
    lr: Annotated[float, Field(gt=0, le=1)] = 2e-4
    """Learning rate of the warm-up."""
    batch_size: Annotated[int, Field(ge=1, le=4096)] = 16
    """Demonstrations per update."""


class SftConfig(Section):
    """Supervised fine-tuning: what an SFT run learns from, and how."""

    data: str = "demonstrations.jsonl"
    """Demonstrations, one JSON object a line, relative to the project: chat messages in the OpenAI
    format, TRL's prompt and completion, or plain text."""
    gold: bool = True
    """Also learn from the attempts that you pinned as gold (gold.jsonl)."""
    validation: str | None = None
    """File with demonstrations that only measure; empty holds a share of the others out."""
    held_out: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Share of the demonstrations that is held out where no file is named, drawn by train.seed; 0
    measures nothing."""
    skip_bad_lines: bool = False
    """Learn without the lines that do not read, and count them; without, they stop the start."""
    epochs: Annotated[int, Field(ge=1, le=1000)] = 1
    """Passes over the demonstrations."""
    batch_size: Annotated[int, Field(ge=1, le=4096)] = 2
    """Demonstrations per update; they go through the trainer train.batch_tokens at a time."""
    lr: Annotated[float, Field(gt=0, le=1)] = 2e-4
    """Learning rate of AdamW (0.9, 0.99) at its highest."""
    schedule: Literal["linear", "cosine", "constant"] = "linear"
    """How the learning rate falls after its highest: to 0 in a line, to 0 in half a cosine, or not
    at all."""
    warmup_share: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Share of the updates in which the learning rate rises to its highest."""
    validate_every: Annotated[int, Field(ge=1)] = 20
    """Updates from one measurement of the held-out loss to the next; each has a checkpoint."""
    patience: Annotated[int, Field(ge=1)] | None = None
    """Measurements without a lower held-out loss after which the run ends; empty never ends it
    early."""


class TrainConfig(Section):
    """How long and how hard it practises."""

    steps: Annotated[int, Field(ge=1, le=1_000_000)] = 100
    """Optimizer steps of the run."""
    groups: Annotated[int, Field(ge=1, le=4096)] = 8
    """Scenarios per step; each makes one group."""
    group_size: Annotated[int, Field(ge=2, le=256)] = 8
    """Attempts per scenario, compared with each other."""
    curriculum: Literal["uniform", "frontier", "easy_first", "hard"] = "uniform"
    """Which scenarios come next: each once an epoch; more often those whose attempts differ
    (`frontier`); easy ones at first, all of them from the middle of the run (`easy_first`); or more
    often those that fail (`hard`)."""
    curriculum_floor: Annotated[float, Field(ge=0, le=1)] = 0.1
    """Share of the choice that stays equal for all scenarios, so that none is forgotten; 1 lets the
    curriculum do nothing."""
    lr: Annotated[float, Field(gt=0, le=1)] = 1e-5
    """Learning rate of AdamW (0.9, 0.99), constant."""
    temperature: Annotated[float, Field(gt=0, le=5)] = 1.0
    """Sampling temperature of training attempts; 1 keeps log-probs exact."""
    max_tokens: Annotated[int, Field(ge=1, le=131_072)] = 256
    """Most tokens of one completion, where the agent asks for more or says nothing."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Every random choice of the run derives from it."""
    validate_every: Annotated[int, Field(ge=0)] = 10
    """Steps between validations; 0 validates only before the first and after the last step."""
    validation_attempts: Annotated[int, Field(ge=1, le=64)] = 1
    """Attempts per validation scenario."""
    checkpoint_every: Annotated[int, Field(ge=1)] = 10
    """Steps between checkpoints; the last step is always kept."""
    keep_last: Annotated[int, Field(ge=1)] | None = 5
    """Checkpoints that stay because they are the newest; empty keeps all. Pinned, exported and
    branched ones stay anyway."""
    keep_best: Annotated[int, Field(ge=0)] = 3
    """Further ones that stay because their validation was best."""
    review_every: Annotated[int, Field(ge=0)] = 0
    """Every so many steps the run waits for your labels before it learns; 0 never waits."""
    review_timeout_s: Annotated[float, Field(gt=0)] | None = 1800
    """Seconds that a review waits; empty waits for ever."""
    review_then: Literal["train", "pause"] = "train"
    """What happens when nobody came: train on what is there, or pause."""
    staleness: Annotated[int, Field(ge=0, le=4)] = 0
    """Updates that the weights which sampled an attempt may lie behind those that learn from it;
    above 0 the next attempts are sampled while the trainer works."""
    batch_tokens: Annotated[int, Field(ge=64)] = 2048
    """Tokens that go through the trainer at once; smaller needs less memory, same result."""
    algorithm: Algorithm = Algorithm()
    """The update rule."""
    warmup: WarmupConfig | None = None
    """Optional supervised start."""

    @model_validator(mode="after")
    def _every_update_has_a_group(self) -> "TrainConfig":
        if self.algorithm.updates > self.groups:
            raise ValueError(
                f"has {self.algorithm.updates} updates for {self.groups} groups: each update takes "
                "whole groups, so set algorithm.updates to at most train.groups"
            )
        return self


class EvaluateConfig(Section):
    """How models are compared with each other; those of providers are paid from here."""

    attempts: Annotated[int, Field(ge=1, le=64)] = 1
    """Attempts of each model at each scenario."""
    budget_usd: Annotated[float, Field(ge=0)] | None = 5.0
    """Dollars that one evaluation may spend on models of providers; attempts beyond it stay
    unscored."""
    usd_per_hour: Annotated[float, Field(ge=0)] | None = None
    """What an hour of this machine costs; with it, the cost of attempts that ran here is said."""
    base_url: str | None = None
    """Address of an OpenAI-compatible server, for models named `openai/…`."""
    max_tokens: Annotated[int, Field(ge=1, le=131_072)] | None = None
    """Most tokens of one answer of a provider's model, its thoughts included; that of training
    when empty."""
    timeout_s: Annotated[float, Field(gt=0, le=3600)] = 120
    """Seconds for one answer of a provider."""
    retries: Annotated[int, Field(ge=0, le=20)] = 4
    """Tries after one that failed by load, server or network."""
    concurrency: Annotated[int, Field(ge=1, le=256)] = 8
    """Questions to providers at the same time."""
    price_prompt: Annotated[float, Field(ge=0)] | None = None
    """Dollars for a million tokens read, where the price list lacks the model."""
    price_completion: Annotated[float, Field(ge=0)] | None = None
    """Dollars for a million tokens answered, where the price list lacks the model."""


class ProjectConfig(Section):
    """A whole `project.toml`."""

    name: str = ""
    """Shown in lists; the folder's name when empty."""
    description: str = ""
    """One line for the Home page."""
    model: ModelConfig = ModelConfig()
    backend: BackendConfig = BackendConfig()
    agent: AgentConfig = AgentConfig()
    scenarios: ScenariosConfig = ScenariosConfig()
    reward: RewardConfig = RewardConfig()
    judge: JudgeConfig = JudgeConfig()
    train: TrainConfig = TrainConfig()
    sft: SftConfig = SftConfig()
    evaluate: EvaluateConfig = EvaluateConfig()
    track: TrackConfig = TrackConfig()
