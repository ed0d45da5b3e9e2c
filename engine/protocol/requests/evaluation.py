"""Evaluation plan: contestants, system prompt variants and number of rollouts."""

from typing import Literal, NamedTuple

from pydantic import Field

from engine.protocol.base import Value
from engine.protocol.config.project import ModelConfig
from engine.protocol.records.demonstrations import SelectDemonstrations

BASE = "base"
BEST = "best"


class Contestant(Value):
    """Model under comparison."""

    name: str
    """`base`, `amber-kestrel@40`, `openai/gpt-5.4`; the second of two equal names ends in ` #2`."""
    kind: Literal["base", "checkpoint", "provider"]
    model: str
    """Name of the base model, or LiteLLM name of a provider's model."""
    model_path: str = ""
    """Folder of the base model; empty for a provider's model."""
    shape: ModelConfig | None = None
    """Model settings of the checkpoint's run (LoRA rank and scale); None for a provider's model."""
    run_id: str = ""
    """Run of the checkpoint; empty, like `step`, `adapter` and `sha256`, for other contestants."""
    step: int = 0
    adapter: str = ""
    """Folder of the adapter, relative to the project."""
    sha256: str = ""
    """SHA-256 of `adapter_model.safetensors`; an adapter with another hash is refused."""


class SystemPrompt(Value):
    """System prompt variant that replaces the agent's system message."""

    name: str
    text: str


class Entry(NamedTuple):
    """Contestant with one system prompt variant."""

    contestant: Contestant
    variant: SystemPrompt | None

    @property
    def label(self) -> str:
        """Name of contestant and variant, stored in each of its trajectories."""
        name = self.contestant.name
        return f"{name} · {self.variant.name}" if self.variant else name


class EvaluationPlan(Value):
    """Plan of an evaluation, fixed at its start and stored in run.json."""

    contestants: list[Contestant]
    """Contestants; the first is the reference of all comparisons."""
    variants: list[SystemPrompt] = Field(default_factory=list)
    """System prompt variants; empty keeps the agent's own system message."""
    attempts: int
    """Rollouts per entry and scenario."""
    scenarios: int
    """Number of scenarios; the run folder keeps them in `scenarios.jsonl`."""
    source: str
    """Source of the scenarios: `train`, `validation`, or a file."""
    seed: int
    demonstrate: SelectDemonstrations | None = None
    """Selection of demonstrations after the last rollout."""

    @property
    def entries(self) -> list[Entry]:
        """All contestants in order, each with all variants. The trajectory of attempt `a` of entry
        `e` (both from 0) has index e · attempts + a in its group."""
        variants: list[SystemPrompt | None] = [*self.variants] or [None]
        return [Entry(one, variant) for one in self.contestants for variant in variants]

    @property
    def size(self) -> int:
        """Number of trajectories per scenario."""
        return len(self.entries) * self.attempts

    @property
    def total(self) -> int:
        """Number of trajectories of the whole evaluation."""
        return self.size * self.scenarios
