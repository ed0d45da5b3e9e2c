"""The interface of a policy, shaped like Tinker's: load, sample, score, forward_backward,
optim_step, publish, save, restore, load_adapter; and two for the local judge. Token ids go in,
token ids and log-probabilities come out; text is not its business. `TorchPolicy` (worker.py) is
one, `VllmPolicy` (vllm/policy.py) another; start.py chooses. A cluster can be a third.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

from pydantic import ConfigDict, Field

from engine.protocol.base import Value
from engine.protocol.config.algorithm import Algorithm
from engine.protocol.config.project import ModelConfig
from engine.protocol.problems import Problem

Progress = Callable[[int, int], None]
OnRestart = Callable[[Problem, int], Awaitable[None]]
"""Callback with the reason why a helper process of the policy was restarted, and how often so
far."""


class PolicyValue(Value):
    """Value with numbers of a model, which need not be finite."""

    model_config = ConfigDict(allow_inf_nan=True)


class PolicySpec(PolicyValue):
    """Parameters with which a policy is built."""

    model_path: str
    model: ModelConfig
    seed: int
    batch_tokens: int
    weights: Literal["full", "8bit", "4bit"] = "full"
    """Precision of the frozen weights in memory."""
    recompute: bool = False
    """Compute each layer again in the backward pass instead of keeping what it computed."""
    value_lr: float | None = None
    """Learning rate of a value head; without one there is none."""
    limits: tuple[float, float] | None = None
    """Peak FLOP/s and bytes/s of this machine, where they are known; else they are measured."""


class AdamStep(PolicyValue):
    """Hyperparameters of one AdamW step (betas 0.9 and 0.99, epsilon 1e-8; 1711.05101)."""

    lr: float
    weight_decay: float = 0.0
    """Decoupled: parameters shrink by lr · weight_decay before the update."""
    max_grad_norm: float = 1.0
    """Larger gradients are scaled down to this norm first."""


class PolicyInfo(PolicyValue):
    parameters: int
    trainable: int
    dtype: str
    device: str
    seconds: float
    """Time it took to load."""
    shares_prefixes: bool = True
    """False where the model's layers keep a state that cannot branch, and nothing is shared."""
    peak_flops: float = 0.0
    """Floating-point operations a second that it does at best; 0 where it was not measured."""
    bandwidth: float = 0.0
    """Bytes a second that it reads at best."""
    eos_tokens: list[int] = Field(default_factory=list)
    on_card: bool = False
    """Whether it works on an NVIDIA card."""
    cached_token_bytes: int = 0
    """Keys and values of one token."""
    sampler: str = ""
    """Name and precision of the sampler, where that is another program."""


class SampleRequest(PolicyValue):
    """Request for one completion."""

    tokens: list[int]
    """The prompt."""
    max_tokens: int
    temperature: float = 1.0
    """0 takes the likeliest token; its log-prob is then that of temperature 1."""
    top_p: float = 1.0
    stop_tokens: list[int] = Field(default_factory=list)
    ignore_eos: bool = False
    """Continue after the end-of-sequence token: forced lengths, for measurements."""
    seed: int
    top_logprobs: int = 0

    @property
    def room(self) -> int:
        """Tokens of prompt and completion at most."""
        return len(self.tokens) + self.max_tokens


class SampledToken(NamedTuple):
    token: int
    logprob: float
    """Natural log-probability under the distribution it was drawn from."""
    top: list[tuple[int, float]]


class TrainItem(PolicyValue):
    """Token sequence to train on."""

    tokens: list[int]
    spans: list[tuple[int, int]]
    """Half-open ranges of trained tokens; never starts at 0."""
    logprobs: list[float] = Field(default_factory=list)
    """The sampler's, one per trained token, as in all lists below; `supervised` needs none."""
    advantages: list[float] = Field(default_factory=list)
    weight: float = 1.0
    """Weight of each trained token, before the division by the normaliser."""
    old_logprobs: list[float] = Field(default_factory=list)
    """The trainer's before the first update of the batch; empty where this is the first."""
    values: list[float] = Field(default_factory=list)
    """The value head's before the first update; empty where it has nothing to learn."""
    returns: list[float] = Field(default_factory=list)
    """Target values of the value head."""


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
    """Sequences to score without training; of the items, tokens and spans count."""

    items: list[TrainItem]
    temperature: float = 1.0
    reference: bool = False
    """Whether to score with the base model too: a second forward pass."""
    values: bool = False
    """Also return the value head's estimates."""


class Scores(PolicyValue):
    """Scores of one item, one number per trained token."""

    logprobs: list[float]
    """The trainer's, natural logarithm."""
    reference: list[float] = Field(default_factory=list)
    values: list[float] = Field(default_factory=list)


class Pair(NamedTuple):
    """Preference between two of N rollouts."""

    better: int
    worse: int
    group: int
    """Pairs of one group are held out together."""
    weight: float = 1.0


class PreferenceModel(PolicyValue):
    """Utility u(x) = Σ weights_D · (x_D − mean_D) / scale_D; i is better than j with probability
    σ(u_i − u_j) (Bradley and Terry 1952). Over the fitted attempts, the mean of u is 0."""

    mean: list[float]
    scale: list[float]
    weights: list[float]
    strength: float
    """Strength of the L2 penalty, chosen by cross-validation."""
    spread: float
    """Standard deviation of u over the fitted attempts."""
    accuracy: float | None
    """Share of the pairs, each held out with its group, that were ordered rightly; ties count half.
    None where there was but one group."""
    count: int
    """Pairs that were held out."""


class Policy(Protocol):
    """Interface of a policy. Its methods raise PolicyError for errors of the policy, ChildDied when
    its process is gone."""

    version: int
    """Number of updates behind the published weights."""
    on_progress: Progress
    on_restart: OnRestart | None

    @property
    def away_s(self) -> float:
        """Seconds so far in which the policy could not answer: it was held, or being restarted."""
        ...

    @property
    def pids(self) -> list[int]:
        """PIDs of the policy's processes."""
        ...

    async def load(self, spec: PolicySpec) -> PolicyInfo: ...

    def sample(self, request: SampleRequest) -> AsyncIterator[list[SampledToken]]:
        """Tokens as they come, in small lists; many requests run at once."""
        ...

    async def hold(self) -> None:
        """Suspend sampling where it is, until `go_on`."""
        ...

    async def go_on(self) -> None: ...

    async def sampling(self) -> dict[str, float]:
        """Metrics of sampling's use of the hardware since the last call; empty when nothing is
        known."""
        ...

    async def score(self, batch: ScoreBatch) -> list[Scores]:
        """Score the items; one result per item, in their order. Changes nothing."""
        ...

    async def features(self, items: list[TrainItem]) -> list[list[float]]:
        """Feature vector of each item's sampled tokens by the untrained model, all of one length D.
        Of the items, tokens and spans count; each has sampled tokens. Training does not change
        it."""
        ...

    async def fit_preferences(
        self, features_ND: list[list[float]], pairs: list[Pair]
    ) -> PreferenceModel:
        """A Bradley–Terry model of the pairs; deterministic. There is at least one pair."""
        ...

    async def forward_backward(self, batch: TrainBatch) -> dict[str, float]:
        """Accumulate gradients. Returns metrics over the trained tokens of the batch."""
        ...

    async def optim_step(self, step: AdamStep) -> dict[str, float]:
        """Clip, update, clear. Returns `grad_norm`."""
        ...

    async def optim_reset(self) -> None:
        """Forget the optimizer's moments: a new objective starts without those of the old one."""
        ...

    async def publish(self, version: int) -> dict[str, float]:
        """Make the trained adapter what `sample` uses, verified on a probe (`publish_gap`)."""
        ...

    async def save(self, folder: Path) -> None:
        """Write adapter (PEFT layout), value head and optimizer state as safetensors into an empty
        folder."""
        ...

    async def save_adapter(self, folder: Path) -> None:
        """Write the adapter alone, as a PEFT folder that does not exist yet."""
        ...

    async def restore(self, folder: Path) -> None:
        """Load the output of `save`, or only an `adapter` in the PEFT layout: the optimizer then
        starts from zero. Layers that the adapter leaves out keep the weights they have. Raises
        PolicyError where it does not fit the model."""
        ...

    async def load_adapter(self, folder: Path) -> None:
        """Take the adapter of a PEFT folder, of the rank that the policy was loaded with, and
        nothing else: enough to sample. `publish` makes it what `sample` uses."""
        ...

    async def close(self) -> None: ...
