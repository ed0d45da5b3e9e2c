"""Interface of a policy, modelled on Tinker's: load, sample, score, forward_backward, optim_step,
publish, save, restore, load_adapter, and two methods for the local judge. It takes token ids and
returns token ids and log-probabilities, never text. Implementations are `TorchPolicy` (worker.py)
and `VllmPolicy` (vllm/policy.py), chosen in start.py."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, Self

from pydantic import ConfigDict, Field, model_validator

from engine.protocol.base import Value
from engine.protocol.config.algorithm import Algorithm
from engine.protocol.config.project import ModelConfig
from engine.protocol.problems import Problem
from engine.protocol.records.clusters import ClusterProfile

Progress = Callable[[int, int], None]
OnRestart = Callable[[Problem, int], Awaitable[None]]
"""Callback with the reason why a helper process of the policy was restarted, and how often so
far."""


MOST_GRAMMAR_CHARS = 65_536
"""Maximum length of a grammar in characters: compiling takes time that grows with it."""

GRAMMAR_ERRORS = "grammar."
"""Beginning of the codes of problems with the grammar of one request."""


MOST_IMAGES = 100
"""Maximum number of images in a request."""

IMAGE_ERRORS = "images."
"""Beginning of the codes of problems with the images of one request."""


class PolicyValue(Value):
    """Value with numbers from a model, which may be infinite or NaN."""

    model_config = ConfigDict(allow_inf_nan=True)


class PolicySpec(PolicyValue):
    """Parameters for loading a policy."""

    model_path: str
    model: ModelConfig
    seed: int
    batch_tokens: int
    weights: Literal["full", "8bit", "4bit"] = "full"
    """Precision of the frozen weights in memory."""
    recompute: bool = False
    """Gradient checkpointing: recompute layers in the backward pass."""
    value_lr: float | None = None
    """Learning rate of the value head; None for no value head."""
    limits: tuple[float, float] | None = None
    """Peak FLOP/s and bytes/s of this machine; measured if None."""


class AdamStep(PolicyValue):
    """Hyperparameters of one AdamW step (betas 0.9 and 0.99, epsilon 1e-8; 1711.05101)."""

    lr: float
    weight_decay: float = 0.0
    """Decoupled weight decay: parameters shrink by lr · weight_decay before the update."""
    max_grad_norm: float = 1.0
    """Gradients of a larger norm are scaled down to it first."""


class PolicyInfo(PolicyValue):
    parameters: int
    trainable: int
    dtype: str
    device: str
    seconds: float
    """Load time in seconds."""
    shares_prefixes: bool = True
    """Whether a common prefix of trajectories is computed once."""
    unshared_reason: str = ""
    """Why prefixes are not shared, as a clause; empty if they are."""
    frozen_experts: bool = False
    """Whether the model is a mixture of experts, whose adapter covers the attention layers only."""
    adapted_experts: bool = False
    """Whether the adapter covers the routed experts of a mixture too."""
    peak_flops: float = 0.0
    """Peak floating-point operations per second; 0 if not measured."""
    bandwidth: float = 0.0
    """Peak memory bandwidth in bytes per second."""
    eos_tokens: list[int] = Field(default_factory=list)
    on_card: bool = False
    """Whether the policy runs on an NVIDIA GPU."""
    cached_token_bytes: int = 0
    """Bytes of the keys and values of one token."""
    reads_images: bool = False
    """Whether requests may have images."""
    sampler: str = ""
    """Name and precision of the sampler, if it is another program."""
    cluster: ClusterProfile | None = None
    """Measured behaviour of the cluster that samples and trains, if one does."""


class ImageInput(PolicyValue):
    """Image in a token sequence: the placeholder tokens that stand for it, and its pixels."""

    start: int
    """Position of its first placeholder token."""
    count: int
    """Number of placeholder tokens, one for each output of the vision model."""
    id: str
    """SHA-256 of the image file, as hexadecimal digits."""
    file: str
    """Safetensors file with the input of the vision model: `pixels` [P, D], float32, and `grid`
    [3], int64: frames, rows and columns of its P patches."""


class SampleRequest(PolicyValue):
    """Request for one completion."""

    tokens: list[int]
    """Token ids of the prompt."""
    images: list[ImageInput] = Field(default_factory=list)
    """Images of the prompt, in order."""
    max_tokens: int
    temperature: float = 1.0
    """0 selects the most likely token, with its log-prob at temperature 1."""
    top_p: float = 1.0
    stop_tokens: list[int] = Field(default_factory=list)
    ignore_eos: bool = False
    """Continue after the end-of-sequence token: forced lengths, for measurements."""
    seed: int
    top_logprobs: int = 0
    grammar: str | None = None
    """Grammar that the completion follows, as JSON of a structural tag of xgrammar 0.2
    (`{"type": "structural_tag", "format": …}`), of at most `MOST_GRAMMAR_CHARS` characters. Tokens
    that it does not allow have probability 0, and log-probs are those of the remaining
    distribution. A completion that satisfies it ends with an end token, in spite of `ignore_eos`.
    """

    @model_validator(mode="after")
    def _end_by_grammar_alone(self) -> Self:
        if self.grammar is not None and self.stop_tokens:
            raise ValueError("a request with a grammar cannot have stop tokens")
        return self

    @property
    def room(self) -> int:
        """Maximum number of tokens of prompt and completion together."""
        return len(self.tokens) + self.max_tokens


class SampledToken(NamedTuple):
    token: int
    logprob: float
    """Natural log-probability under the distribution that the token was sampled from."""
    top: list[tuple[int, float]]


class TrainItem(PolicyValue):
    """Token sequence to train on."""

    tokens: list[int]
    images: list[ImageInput] = Field(default_factory=list)
    """Images among the tokens, in order; never trained."""
    spans: list[tuple[int, int]]
    """Half-open ranges of trained tokens; never starts at 0."""
    logprobs: list[float] = Field(default_factory=list)
    """Log-probs by the sampler, one per trained token, as in all lists below."""
    advantages: list[float] = Field(default_factory=list)
    weight: float = 1.0
    """Weight of each trained token, before the division by the normaliser."""
    old_logprobs: list[float] = Field(default_factory=list)
    """Log-probs of the trainer before the first update of the batch; empty for the first update."""
    values: list[float] = Field(default_factory=list)
    """Estimates of the value head before the first update; empty without a value loss."""
    returns: list[float] = Field(default_factory=list)
    """Target values of the value head."""
    grammars: list[tuple[int, str]] = Field(default_factory=list)
    """Spans that were sampled under a grammar: index of the span and the grammar, as in
    `SampleRequest`. Their log-probs are those of the tokens that it allows."""


class TrainBatch(PolicyValue):
    """All sequences of one optimizer step, or a part of them."""

    items: list[TrainItem]
    objective: Literal["policy_gradient", "supervised"] = "policy_gradient"
    algorithm: Algorithm = Algorithm()
    temperature: float = 1.0
    """Temperature at which the tokens were sampled."""
    normaliser: int
    """Divisor of the summed losses of the whole step, however the step is split."""


class ScoreBatch(PolicyValue):
    """Sequences to score without training; only tokens, spans and grammars of the items are
    used."""

    items: list[TrainItem]
    temperature: float = 1.0
    reference: bool = False
    """Whether to score with the base model too, in a second forward pass."""
    values: bool = False
    """Also return the value head's estimates."""


class Scores(PolicyValue):
    """Scores of one item, one number per trained token."""

    logprobs: list[float]
    """Log-probs (natural) by the trainer."""
    reference: list[float] = Field(default_factory=list)
    values: list[float] = Field(default_factory=list)


class Pair(NamedTuple):
    """Preference between two of N rollouts."""

    better: int
    worse: int
    group: int
    """Group of the pair; in cross-validation, groups are held out as a whole."""
    weight: float = 1.0


class PreferenceModel(PolicyValue):
    """Utility u(x) = Σ weights_D · (x_D − mean_D) / scale_D; i is better than j with probability
    σ(u_i − u_j) (Bradley and Terry 1952). The mean of u over the fitted rollouts is 0."""

    mean: list[float]
    scale: list[float]
    weights: list[float]
    strength: float
    """Strength of the L2 penalty, chosen by cross-validation."""
    spread: float
    """Standard deviation of u over the fitted rollouts."""
    accuracy: float | None
    """Share of held-out pairs, by group, that were ordered correctly; ties count half. None for a
    single group."""
    count: int
    """Number of held-out pairs."""


class Policy(Protocol):
    """Interface of a policy. Methods raise PolicyError for errors of the policy, ChildDied if its
    process ended."""

    version: int
    """Number of updates behind the published weights."""
    on_progress: Progress
    on_restart: OnRestart | None

    @property
    def away_s(self) -> float:
        """Total seconds in which the policy could not sample: held, or restarting."""
        ...

    @property
    def pids(self) -> list[int]:
        """PIDs of the policy's processes."""
        ...

    async def load(self, spec: PolicySpec) -> PolicyInfo: ...

    def sample(self, request: SampleRequest) -> AsyncIterator[list[SampledToken]]:
        """Yield sampled tokens in small lists; many requests may run concurrently. Raises
        RolloutError if the request's grammar cannot be used; other requests continue."""
        ...

    async def check_grammar(self, grammar: str) -> list[int]:
        """Compile a grammar of `SampleRequest` and keep it for later use. Returns the token ids
        that end a completion under it. Raises RolloutError if it cannot be compiled in time."""
        ...

    async def hold(self) -> None:
        """Suspend sampling until `go_on`; running requests keep their tokens."""
        ...

    async def go_on(self) -> None: ...

    async def sampling(self) -> dict[str, float]:
        """Hardware utilisation of sampling since the last call; empty if there was none."""
        ...

    async def score(self, batch: ScoreBatch) -> list[Scores]:
        """Score items: log-probs of the trained tokens, and those of the base model and values if
        the batch asks for them. Returns one result per item, in order. Weights do not change."""
        ...

    async def features(self, items: list[TrainItem]) -> list[list[float]]:
        """Feature vector [D] of each item, computed by the base model, so that training does not
        change it. Only tokens and spans of the items are used; each needs sampled tokens."""
        ...

    async def fit_preferences(
        self, features_ND: list[list[float]], pairs: list[Pair]
    ) -> PreferenceModel:
        """Fit a Bradley–Terry model of preferences to feature vectors and at least one pair
        (better, worse); deterministic."""
        ...

    async def forward_backward(self, batch: TrainBatch) -> dict[str, float]:
        """Accumulate gradients. Returns metrics over the trained tokens of the batch."""
        ...

    async def optim_step(self, step: AdamStep) -> dict[str, float]:
        """Clip gradients, update weights, clear gradients. Returns `grad_norm`."""
        ...

    async def optim_reset(self) -> None:
        """Reset the optimizer's moments, for the start of a different objective."""
        ...

    async def publish(self, version: int) -> dict[str, float]:
        """Make `sample` use the trained adapter as `version` (number of updates). Returns metrics:
        the difference between trainer and sampler on a fixed text (`publish_gap`), and others."""
        ...

    async def save(self, folder: Path) -> None:
        """Write adapter (PEFT layout), value head and optimizer state into an empty folder."""
        ...

    async def save_adapter(self, folder: Path) -> None:
        """Write the adapter alone, as a PEFT folder that does not exist yet."""
        ...

    async def restore(self, folder: Path) -> None:
        """Load the output of `save`, or a folder with only an `adapter` in the PEFT layout, which
        resets the optimizer. Layers without saved weights stay unchanged. Raises PolicyError if the
        adapter does not fit the model."""
        ...

    async def load_adapter(self, folder: Path) -> None:
        """Load the adapter of a PEFT folder, of the rank that the policy was loaded with, without
        optimizer state. `sample` uses it after `publish`."""
        ...

    async def close(self) -> None: ...
