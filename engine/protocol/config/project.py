"""Schema of `project.toml`.

The docstring of a field is its tooltip in the studio; its bounds are the limits of the control.
"""

from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from engine.protocol.addresses import check_model
from engine.protocol.base import Section
from engine.protocol.config.agent import AgentConfig
from engine.protocol.config.alerts import AlertsConfig
from engine.protocol.config.algorithm import Algorithm
from engine.protocol.config.labels import LabelsConfig
from engine.protocol.config.sweep import SweepConfig
from engine.protocol.config.tool_syntaxes import ToolSyntax
from engine.protocol.config.tracking import TrackConfig


class ModelConfig(Section):
    """Base model; a LoRA adapter on all linear layers is trained."""

    name: str = "smollm2-135m-instruct"
    """Name from `atelier models list`, Hugging Face id, or folder with safetensors files."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Data type of the frozen weights; `auto` selects bfloat16 where the hardware supports it."""
    max_context: Annotated[int, Field(ge=64, le=131_072)] = 1024
    """Context length: maximum tokens of prompt plus completion."""
    rank: Annotated[int, Field(ge=1, le=512)] = 16
    """Rank of the LoRA adapters, one per linear layer."""
    alpha: Annotated[float, Field(gt=0, le=1024)] = 32
    """LoRA scale: the adapter's output is multiplied by alpha / rank."""
    adapt_experts: bool = False
    """Also put LoRA on the routed experts of a mixture (MoE), each of this rank; without it, the
    adapter of a mixture covers the attention layers alone. Needs the torch trainer and sampler."""
    thinking: Literal["default", "on", "off"] = "default"
    """Reasoning before an answer, for models whose chat template can turn it on and off; `default`
    leaves it to the template."""
    thinking_budget: Annotated[int, Field(ge=1, le=131_072)] | None = None
    """Maximum tokens of reasoning in an answer; no limit when empty.
    Longer reasoning is closed as the chat template closes it, and the model answers. The closing
    tokens are not trained."""
    keep_reasoning: Literal["template", "always"] = "template"
    """Reasoning of earlier answers in later prompts: as the `template` has it (most leave it out
    after the next user message, as servers do), or `always`, which keeps a rollout one sequence."""
    tool_syntax: ToolSyntax = "auto"
    """Format of the model's tool calls; `auto` finds it out from the chat template."""
    template_variables: dict[str, str | int | float | bool] = Field(default_factory=dict)
    """Further values that the chat template reads, such as reasoning_effort."""

    @model_validator(mode="after")
    def _check_budget(self) -> "ModelConfig":
        if self.thinking == "off" and self.thinking_budget is not None:
            raise ValueError(
                "has a thinking_budget, but thinking = off: leave model.thinking_budget empty, or "
                "set model.thinking to default or on"
            )
        return self


class BackendConfig(Section):
    """Sampling and training backends, and the GPUs they use."""

    trainer: Literal["torch", "unsloth"] = "torch"
    """Training backend: `torch` runs on any hardware; `unsloth` loads models in 4 or 8 bits and
    trains them with its own kernels on NVIDIA GPUs."""
    sampler: Literal["torch", "vllm"] = "torch"
    """Sampling backend: `torch` samples in the trainer's process; `vllm` in a separate server, many
    times faster on a GPU."""
    weights: Literal["full", "8bit", "4bit"] = "full"
    """Quantization of the frozen weights; `full` keeps the data type of model.dtype. 8 and 4 bits
    need Unsloth and an NVIDIA GPU."""
    recompute: bool = False
    """Gradient checkpointing: recompute activations in the backward pass. A third slower with a
    fraction of the memory; the result is the same."""
    processes: Annotated[int, Field(ge=1, le=8)] = 1
    """Data-parallel training processes that share each batch, one per GPU."""
    memory_share: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Share of GPU memory that vLLM reserves; computed from the memory forecast when empty."""
    sleep: Literal["auto", "off", "cache", "all"] = "auto"
    """GPU memory that vLLM frees while the policy trains: its KV `cache`, or `all`; `auto` frees as
    much as the memory forecast requires."""
    share_card: bool = False
    """Start the run even if other programs use GPU memory that it is forecast to need."""
    cluster: str = ""
    """Name of the cluster (see `atelier clusters`) that samples and trains in place of this
    machine; its server decides on precision, GPUs and memory."""

    @model_validator(mode="after")
    def _check_weights(self) -> "BackendConfig":
        if self.weights != "full" and self.trainer == "torch":
            raise ValueError(
                f"has weights = {self.weights}, but trainer = torch cannot quantize weights: set "
                "backend.trainer to unsloth, or backend.weights to full"
            )
        return self


class ScenariosConfig(Section):
    """Training and validation scenarios (JSONL)."""

    train: str = "scenarios/train.jsonl"
    """Training scenarios, relative to the project."""
    validation: str | None = "scenarios/validation.jsonl"
    """Validation scenarios, never trained on; leave empty for none."""


class Constraint(Section):
    """A hard rule on one reward part or metric."""

    part: str
    """Name of the reward part or metric."""
    above: float | None = None
    """The constraint applies when the value is above this."""
    below: float | None = None
    """The constraint applies when the value is below this."""
    effect: Literal["veto", "penalty"] = "veto"
    """`veto` sets the reward to `value`, `penalty` subtracts `value`."""
    value: float = 0.0
    """Value that the effect sets or subtracts."""


class RewardConfig(Section):
    """Sources of the reward. Weighted parts are summed, then constraints apply."""

    weights: dict[str, float] = Field(default_factory=dict)
    """Weight of each reward part; parts not listed have weight 1."""
    required: tuple[str, ...] = ()
    """Names of reward parts that every trajectory needs; a trajectory without one of them is
    unscored. Empty: any one part is enough."""
    constraints: tuple[Constraint, ...] = ()
    """Vetoes and penalties, applied in this order to the weighted sum of the parts."""


class JudgeConfig(Section):
    """LLM judge: scores the trajectories of a group relative to each other by a rubric (RULER)."""

    enabled: bool = False
    """Score the trajectories of each group with an LLM judge."""
    models: tuple[str, ...] = ()
    """Judge models as LiteLLM names them: `openai/gpt-5.4`, `anthropic/…`, `ollama_chat/…`."""
    base_url: str | None = None
    """Base URL of an OpenAI-compatible server, for models named `openai/…`."""
    rubric: str = "rubric.md"
    """Rubric file: criteria of a good trajectory in plain language, relative to the project."""
    local: bool = False
    """Score routine steps with a small local model at no cost; it is trained on your labels and on
    the verdicts of the judge models."""
    local_every: Annotated[int, Field(ge=1)] = 5
    """Steps between passes of the judge models; the local judge scores the other steps."""
    local_least: Annotated[float, Field(ge=0, le=1)] = 0.7
    """Minimum share of held-out pairs that the local judge must rank correctly before it is used.
    """
    canary_every: Annotated[int, Field(ge=0)] = 10
    """Steps between two canary trajectories that test whether the judge can be fooled (one judge
    call each); 0 disables them."""
    prompt: Literal["atelier", "art"] = "atelier"
    """Judge prompt: `art` uses the prompt of ART's RULER, one pass, trajectories in their original
    order."""
    combine: Literal["mean", "median", "majority"] = "mean"
    """Aggregation of the scores of several judge models."""
    passes: Annotated[int, Field(ge=1, le=9)] = 3
    """Maximum passes per group, each with the trajectories in another order; no further pass is
    made once two passes agree."""
    stable: Annotated[float, Field(ge=-1, le=1)] = 0.8
    """Minimum Kendall's τ between the rankings of two passes that counts as agreement."""
    temperature: Annotated[float, Field(ge=0, le=2)] = 0.0
    """Sampling temperature of the judge."""
    max_tokens: Annotated[int, Field(ge=64, le=131_072)] = 4096
    """Maximum tokens of a judge's response, reasoning included."""
    show_reasoning: bool = True
    """Show the judge the reasoning before the answers."""
    max_chars: Annotated[int, Field(ge=500)] = 24_000
    """Maximum characters of one trajectory in the judge prompt; long messages are shortened in the
    middle."""
    timeout_s: Annotated[float, Field(gt=0, le=3600)] = 120
    """Timeout of one judge call, in seconds."""
    retries: Annotated[int, Field(ge=0, le=20)] = 4
    """Retries of a judge call after overload, server or network errors."""
    concurrency: Annotated[int, Field(ge=1, le=256)] = 8
    """Maximum concurrent judge calls."""
    budget_usd: Annotated[float, Field(ge=0)] | None = 5.0
    """Judge budget of a run, in US dollars; trajectories beyond it stay unscored."""
    price_prompt: Annotated[float, Field(ge=0)] | None = None
    """Price in US dollars per million prompt tokens, if the price list lacks the model."""
    price_completion: Annotated[float, Field(ge=0)] | None = None
    """Price in US dollars per million completion tokens, if the price list lacks the model."""

    @field_validator("models")
    @classmethod
    def _check_models(cls, models: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(check_model(model) for model in models)

    @model_validator(mode="after")
    def _check_enabled(self) -> "JudgeConfig":
        if self.enabled and not (self.models or self.local):
            raise ValueError("is enabled without a model: add one to judge.models")
        return self


class WarmupConfig(Section):
    """Supervised fine-tuning on demonstrations before the first step."""

    file: str = "demonstrations.jsonl"
    """Demonstrations (JSONL, chat messages in the OpenAI format), relative to the project."""
    gold: bool = True
    """Also train on the trajectories that you pinned as gold (gold.jsonl)."""
    epochs: Annotated[int, Field(ge=1, le=100)] = 1
    """Epochs over the demonstrations."""
    lr: Annotated[float, Field(gt=0, le=1)] = 2e-4
    """Learning rate of the supervised warm-up before the first RL step."""
    batch_size: Annotated[int, Field(ge=1, le=4096)] = 16
    """Demonstrations per update."""


class SftConfig(Section):
    """Data and hyperparameters of an SFT run."""

    data: str = "demonstrations.jsonl"
    """Demonstrations (JSONL), relative to the project: chat messages in the OpenAI format, TRL's
    prompt and completion, or plain text."""
    gold: bool = True
    """Also train on the trajectories that you pinned as gold (gold.jsonl)."""
    validation: str | None = None
    """File with validation demonstrations, never trained on; when empty, a share of the training
    data is held out."""
    held_out: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Share of the demonstrations held out for validation if no validation file is set, drawn with
    train.seed; 0 holds none out."""
    skip_bad_lines: bool = False
    """Skip and count lines that cannot be parsed; if off, such a line prevents the start."""
    epochs: Annotated[int, Field(ge=1, le=1000)] = 1
    """Epochs over the demonstrations."""
    batch_size: Annotated[int, Field(ge=1, le=4096)] = 2
    """Demonstrations per update, processed in micro-batches of train.batch_tokens tokens."""
    lr: Annotated[float, Field(gt=0, le=1)] = 2e-4
    """Peak learning rate of AdamW (0.9, 0.99)."""
    schedule: Literal["linear", "cosine", "constant"] = "linear"
    """Learning rate schedule after the peak: linear or cosine decay to 0, or constant."""
    warmup_share: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Share of the updates over which the learning rate rises to its peak."""
    validate_every: Annotated[int, Field(ge=1)] = 20
    """Updates between measurements of the validation loss; each saves a checkpoint."""
    patience: Annotated[int, Field(ge=1)] | None = None
    """Early stopping: the run ends after this many measurements without a lower validation loss;
    empty disables it."""


class TrainConfig(Section):
    """Training length, batch size and schedule."""

    steps: Annotated[int, Field(ge=1, le=1_000_000)] = 100
    """Optimizer steps of the run."""
    groups: Annotated[int, Field(ge=1, le=4096)] = 8
    """Groups per step, one per scenario."""
    group_size: Annotated[int, Field(ge=2, le=256)] = 8
    """Rollouts per scenario, compared with each other."""
    curriculum: Literal["uniform", "frontier", "easy_first", "hard"] = "uniform"
    """Selection of the scenarios. `uniform`: each once per epoch; `frontier`: more often those
    whose rewards vary; `easy_first`: easy ones first, all from the middle of the run on; `hard`:
    more often those with a low solve rate."""
    curriculum_floor: Annotated[float, Field(ge=0, le=1)] = 0.1
    """Share of the sampling probability that stays uniform, so that every scenario keeps being
    sampled; 1 disables the curriculum."""
    lr: Annotated[float, Field(gt=0, le=1)] = 1e-5
    """Learning rate of AdamW (0.9, 0.99), constant."""
    temperature: Annotated[float, Field(gt=0, le=5)] = 1.0
    """Sampling temperature of training rollouts; log-probs are those at this temperature."""
    max_tokens: Annotated[int, Field(ge=1, le=131_072)] = 256
    """Maximum tokens of one completion, if the agent requests more or sets no limit."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Seed of every random choice of the run."""
    validate_every: Annotated[int, Field(ge=0)] = 10
    """Steps between validations; 0 validates only before the first and after the last step."""
    patience: Annotated[int, Field(ge=1)] | None = None
    """Early stopping: the run ends after this many validations without a better one, measured by
    win rate if a judge compares them, else by mean reward; empty disables it."""
    validation_attempts: Annotated[int, Field(ge=1, le=64)] = 1
    """Rollouts per validation scenario."""
    checkpoint_every: Annotated[int, Field(ge=1)] = 10
    """Steps between checkpoints; the last step is always saved."""
    keep_last: Annotated[int, Field(ge=1)] | None = 5
    """Number of newest checkpoints to keep; empty keeps all. Pinned, exported and branched
    checkpoints are always kept."""
    keep_best: Annotated[int, Field(ge=0)] = 3
    """Number of checkpoints with the best validation reward that are kept as well."""
    review_every: Annotated[int, Field(ge=0)] = 0
    """Steps between reviews, in which the run waits for your labels before the update; 0 disables
    reviews."""
    review_timeout_s: Annotated[float, Field(gt=0)] | None = 1800
    """Timeout of a review, in seconds; empty waits without limit."""
    review_then: Literal["train", "pause"] = "train"
    """Action after the timeout of a review: train on the labels so far, or pause."""
    staleness: Annotated[int, Field(ge=0, le=4)] = 0
    """Maximum number of updates between the weights that sampled a trajectory and the weights
    trained on it; above 0, the next rollouts are sampled while the policy trains."""
    batch_tokens: Annotated[int, Field(ge=64)] = 2048
    """Tokens per forward and backward pass; fewer need less memory, the result is the same."""
    algorithm: Algorithm = Algorithm()
    """The update rule."""
    warmup: WarmupConfig | None = None
    """Supervised fine-tuning before the first step (optional)."""

    @model_validator(mode="after")
    def _check_patience(self) -> "TrainConfig":
        if self.patience is not None and not self.validate_every:
            raise ValueError(
                "has patience but no validations during training: set train.validate_every"
            )
        return self

    @model_validator(mode="after")
    def _check_updates(self) -> "TrainConfig":
        if self.algorithm.updates > self.groups:
            raise ValueError(
                f"has {self.algorithm.updates} updates for {self.groups} groups: each update takes "
                "whole groups, so set algorithm.updates to at most train.groups"
            )
        return self


class EvaluateConfig(Section):
    """Evaluation: comparison of models on the same scenarios."""

    attempts: Annotated[int, Field(ge=1, le=64)] = 1
    """Rollouts of each model on each scenario."""
    budget_usd: Annotated[float, Field(ge=0)] | None = 5.0
    """Budget of one evaluation for API models, in US dollars; rollouts beyond it stay unscored."""
    usd_per_hour: Annotated[float, Field(ge=0)] | None = None
    """Cost of this machine in US dollars per hour; used to compute the cost of local rollouts."""
    base_url: str | None = None
    """Base URL of an OpenAI-compatible server, for models named `openai/…`."""
    max_tokens: Annotated[int, Field(ge=1, le=131_072)] | None = None
    """Maximum tokens of one response of an API model, reasoning included; train.max_tokens when
    empty."""
    timeout_s: Annotated[float, Field(gt=0, le=3600)] = 120
    """Timeout of one call to an API model, in seconds."""
    retries: Annotated[int, Field(ge=0, le=20)] = 4
    """Retries of a call after overload, server or network errors."""
    concurrency: Annotated[int, Field(ge=1, le=256)] = 8
    """Maximum concurrent calls to API models."""
    price_prompt: Annotated[float, Field(ge=0)] | None = None
    """Price in US dollars per million prompt tokens, if the price list lacks the model."""
    price_completion: Annotated[float, Field(ge=0)] | None = None
    """Price in US dollars per million completion tokens, if the price list lacks the model."""


class ProjectConfig(Section):
    """Complete `project.toml`."""

    name: str = ""
    """Name of the project in lists; the folder's name when empty."""
    description: str = ""
    """One-line description on the Home page."""
    model: ModelConfig = ModelConfig()
    backend: BackendConfig = BackendConfig()
    agent: AgentConfig = AgentConfig()
    scenarios: ScenariosConfig = ScenariosConfig()
    reward: RewardConfig = RewardConfig()
    judge: JudgeConfig = JudgeConfig()
    labels: LabelsConfig = LabelsConfig()
    train: Annotated[TrainConfig, Field(validate_default=True)] = TrainConfig()
    alerts: AlertsConfig = AlertsConfig()
    sft: SftConfig = SftConfig()
    evaluate: EvaluateConfig = EvaluateConfig()
    sweep: SweepConfig = SweepConfig()
    track: TrackConfig = TrackConfig()

    @field_validator("backend")
    @classmethod
    def _check_experts(cls, backend: BackendConfig, info: ValidationInfo) -> BackendConfig:
        model: ModelConfig | None = info.data.get("model")
        for role in ("trainer", "sampler") if model and model.adapt_experts else ():
            if (program := getattr(backend, role)) != "torch":
                raise ValueError(
                    f"has {role} = {program}, which cannot apply an adapter of experts: set "
                    f"backend.{role} to torch, or model.adapt_experts to false"
                )
        return backend

    @field_validator("train")
    @classmethod
    def _check_room_for_answers(cls, train: TrainConfig, info: ValidationInfo) -> TrainConfig:
        model: ModelConfig | None = info.data.get("model")
        budget = model.thinking_budget if model else None
        if budget is not None and budget >= train.max_tokens:
            raise ValueError(
                f"has max_tokens = {train.max_tokens}, which leaves no room for an answer behind "
                f"model.thinking_budget = {budget}: raise train.max_tokens, or set a smaller budget"
            )
        return train
