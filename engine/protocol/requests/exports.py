"""Checkpoint exports: requests, progress and the parity report."""

from typing import Literal

from pydantic import Field, model_validator

from engine.protocol.base import Request, Value

ExportFormat = Literal["adapter", "merged", "gguf"]
ExportDtype = Literal["float32", "float16", "bfloat16", "q8_0"]
Parity = Literal["equal", "close", "differs"]
"""Result of the parity check. `equal`: only rounding differences of the precision; `close`: within
the tolerance of a lower precision; `differs`: other changes, or equality could not be verified."""
ExportPhase = Literal[
    "checking",
    "reference",
    "writing",
    "weights",
    "reading_back",
    "publishing",
    "pushing",
    "fetching",
]

MOST_PROMPTS = 100


class ExportCheckpoint(Request):
    """Export a checkpoint to a format that other programs load, and verify it against the trained
    model."""

    format: ExportFormat
    out: str
    """Output folder on the engine's machine; must be new or empty."""
    dtype: ExportDtype | None = None
    """Data type; None: float32 for an adapter, the base model's own when merged, float16 as
    GGUF."""
    prompts: int = Field(default=32, ge=1, le=MOST_PROMPTS)
    """Number of stored trajectories on which the outputs are compared."""
    shard_bytes: int = Field(default=5_000_000_000, ge=1_000)
    """Maximum size of a weight file in bytes, unless a single tensor is larger."""
    force: bool = False
    """Keep the export even if it differs; the report says so."""
    push: str = ""
    """ORG/NAME on the Hugging Face Hub; a new repository is private."""
    token: str = Field(default="", repr=False)
    """Hugging Face token; held in memory only while it is used."""

    @model_validator(mode="after")
    def _check_dtype(self) -> "ExportCheckpoint":
        if self.format == "adapter" and self.dtype not in (None, "float32"):
            raise ValueError("an adapter is exported in float32, as trained")
        if self.format == "merged" and self.dtype == "q8_0":
            raise ValueError("q8_0 is available only for gguf")
        return self


class ExportTicked(Value):
    """Progress of an export; never stored."""

    kind: Literal["tick"] = "tick"
    phase: ExportPhase
    words: str
    done: int
    total: int
    share: float
    """Progress of the whole export, 0 to 1."""


class Histogram(Value):
    """`counts[i]` values lie in [edges[i], edges[i + 1])."""

    edges: list[float]
    counts: list[int]


class LogprobGap(Value):
    """Absolute log-prob difference per token between trained and exported model, in nats."""

    sequences: int
    tokens: int
    mean: float
    p99: float
    largest: float
    histogram: Histogram


class FirstDifference(Value):
    """First prompt with a different greedy continuation."""

    prompt: str
    reference: str
    exported: str
    position: int
    """Index of the first differing token, from 0."""
    gap: float | None
    """Log-prob difference of the two tokens in the reference, in nats; None if the other token is
    not among its top candidates."""


class GreedyMatch(Value):
    """Token-by-token comparison of greedy continuations."""

    prompts: int
    same: int
    ties: int
    """Continuations that differ only after a tie: a token that the reference rates equal within the
    limit."""
    first: FirstDifference | None = None


class WeightsCheck(Value):
    """Comparison of every exported number with base + s·B·A, within the rounding of the
    precision."""

    tensors: int
    adapted: int
    """Number of tensors changed by the adapter."""
    numbers: int
    outside: int
    """Number of values not explained by rounding."""
    first: str = ""
    """First tensor with such a value."""
    missing: list[str] = Field(default_factory=list)
    unexpected: list[str] = Field(default_factory=list)
    converted: bool = False
    """Whether llama.cpp converted the file: the check then applies to the merged model before
    conversion."""

    @property
    def good(self) -> bool:
        return not (self.outside or self.missing or self.unexpected)


class FilesCheck(Value):
    """Verification of file hashes after reading back."""

    files: int
    bytes: int
    wrong: list[str] = Field(default_factory=list)


class Sameness(Value):
    """Properties that must equal those of the base model."""

    chat_template: bool
    tokenizer: bool
    """Whether the tokenizer gives the same tokens for the prompts."""
    stop_tokens: bool
    config: bool


class Limits(Value):
    """Tolerances of a precision, in nats; None is no limit."""

    largest: float | None
    mean: float
    p99: float
    tie: float
    """Greedy tokens may differ if the reference rates them equal within this difference."""
    verdict: Parity
    """Verdict for an export within these limits."""
    reason: str


class ParityReport(Value):
    """Parity report (`parity.json`): evidence that the export equals the trained model."""

    schema_version: int = 1
    verdict: Parity
    failures: list[str] = Field(default_factory=list)
    """Why the export differs, one sentence each."""
    forced: bool = False
    """Whether the export was kept with `force` although it differs."""
    format: ExportFormat
    dtype: ExportDtype
    computed_in: Literal["float32", "bfloat16"]
    """Precision of both computations; the exported values are those of the files."""
    device: str
    limits: Limits
    files: FilesCheck
    weights: WeightsCheck | None
    """None if the weights could not be compared."""
    logprobs: LogprobGap | None
    greedy: GreedyMatch | None
    same: Sameness | None
    seconds: float


class ServeCommand(Value):
    """Command line that serves the export."""

    tool: str
    command: str
    note: str = ""


class ExportReport(Value):
    """Final result of an export."""

    kind: Literal["report"] = "report"
    run_id: str
    step: int
    path: str
    bytes: int
    parity: ParityReport
    commands: list[ServeCommand]
    pushed: str = ""
    """URL on the Hugging Face Hub."""
