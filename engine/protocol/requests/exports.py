"""Exports of a checkpoint: what is asked, how far it is, and the proof that comes with it."""

from typing import Literal

from pydantic import Field, model_validator

from engine.protocol.base import Request, Value

ExportFormat = Literal["adapter", "merged", "gguf"]
ExportDtype = Literal["float32", "float16", "bfloat16", "q8_0"]
Parity = Literal["equal", "close", "differs"]
"""`equal`: nothing but the rounding of the precision; `close`: within what a coarser one is
allowed; `differs`: something else has changed, or nobody can say that nothing has."""
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
    """Write a checkpoint as files that other programs load, and prove that they are what was
    trained."""

    format: ExportFormat
    out: str
    """A folder on the engine's machine that does not exist, or is empty."""
    dtype: ExportDtype | None = None
    """None: float32 for an adapter, the base model's own when merged, float16 as GGUF."""
    prompts: int = Field(default=32, ge=1, le=MOST_PROMPTS)
    """Stored attempts that the two are compared on."""
    shard_bytes: int = Field(default=5_000_000_000, ge=1_000)
    """Largest file of weights, where one tensor alone is not larger."""
    force: bool = False
    """Keep it even where it differs; the report says so."""
    push: str = ""
    """ORG/NAME on the Hugging Face hub, made private where it is new."""
    token: str = Field(default="", repr=False)
    """Of the hub; held in memory while it is used, and nowhere else."""

    @model_validator(mode="after")
    def _fits(self) -> "ExportCheckpoint":
        if self.format == "adapter" and self.dtype not in (None, "float32"):
            raise ValueError("an adapter is kept in float32, as it was trained")
        if self.format == "merged" and self.dtype == "q8_0":
            raise ValueError("q8_0 is a precision of gguf")
        return self


class ExportTicked(Value):
    """How far an export is; never stored."""

    kind: Literal["tick"] = "tick"
    phase: ExportPhase
    words: str
    done: int
    total: int
    share: float
    """Of the whole work, from 0 to 1."""


class Histogram(Value):
    """`counts[i]` values lie in [edges[i], edges[i + 1])."""

    edges: list[float]
    counts: list[int]


class LogprobGap(Value):
    """|Δ log-prob| per token, in nats, between what was trained and what was exported."""

    sequences: int
    tokens: int
    mean: float
    p99: float
    largest: float
    histogram: Histogram


class FirstDifference(Value):
    """The first prompt that is answered in other words."""

    prompt: str
    reference: str
    exported: str
    position: int
    """Of the first token that differs, from 0."""
    gap: float | None
    """Nats between the two tokens by the reference; None where the other is not among its
    likeliest."""


class GreedyMatch(Value):
    """The likeliest continuation of each prompt, token by token."""

    prompts: int
    same: int
    ties: int
    """Differing, but from a token on that the reference finds as likely, within the limit."""
    first: FirstDifference | None = None


class WeightsCheck(Value):
    """Every exported number against base + s·B·A, to the rounding of its precision."""

    tensors: int
    adapted: int
    """Of them, those that the adapter changes."""
    numbers: int
    outside: int
    """Numbers that no rounding explains."""
    first: str = ""
    """The first tensor with such a number."""
    missing: list[str] = Field(default_factory=list)
    unexpected: list[str] = Field(default_factory=list)
    converted: bool = False
    """llama.cpp made the file: what was checked is the merged model that it was made of."""

    @property
    def good(self) -> bool:
        return not (self.outside or self.missing or self.unexpected)


class FilesCheck(Value):
    """Every file against its hash, when it was read back."""

    files: int
    bytes: int
    wrong: list[str] = Field(default_factory=list)


class Sameness(Value):
    """What must be as it was in the base model."""

    chat_template: bool
    tokenizer: bool
    """The same tokens for the prompts' text."""
    stop_tokens: bool
    config: bool


class Limits(Value):
    """What a precision is allowed, in nats; None is no limit."""

    largest: float | None
    mean: float
    p99: float
    tie: float
    """A greedy token may differ where the reference has less than this between the two."""
    verdict: Parity
    """What is said of an export that keeps them."""
    reason: str


class ParityReport(Value):
    """`parity.json`: whether an export is what was trained, and by which evidence."""

    schema_version: int = 1
    verdict: Parity
    failures: list[str] = Field(default_factory=list)
    """Why it differs, a sentence each."""
    forced: bool = False
    """It differs, and was kept because somebody insisted."""
    format: ExportFormat
    dtype: ExportDtype
    computed_in: Literal["float32", "bfloat16"]
    """Precision in which both sides were computed; the exported numbers are those of the files."""
    device: str
    limits: Limits
    files: FilesCheck
    weights: WeightsCheck | None
    """None where the weights could not be laid side by side."""
    logprobs: LogprobGap | None
    greedy: GreedyMatch | None
    same: Sameness | None
    seconds: float


class ServeCommand(Value):
    """A command line that serves the export."""

    tool: str
    command: str
    note: str = ""


class ExportReport(Value):
    """The last word of an export."""

    kind: Literal["report"] = "report"
    run_id: str
    step: int
    path: str
    bytes: int
    parity: ParityReport
    commands: list[ServeCommand]
    pushed: str = ""
    """Address on the hub."""
