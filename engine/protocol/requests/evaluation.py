"""What an evaluation compares: contestants, variants of the system prompt, attempts of each."""

from typing import Literal, NamedTuple

from pydantic import Field

from engine.protocol.base import Value
from engine.protocol.config.project import ModelConfig
from engine.protocol.records.demonstrations import SelectDemonstrations

BASE = "base"
BEST = "best"


class Contestant(Value):
    """One model that is compared."""

    name: str
    """`base`, `amber-kestrel@40`, `openai/gpt-5.4`; the second of two equal ones ends in ` #2`."""
    kind: Literal["base", "checkpoint", "provider"]
    model: str
    """Name of the base model, or the model as litellm names it."""
    model_path: str = ""
    """Folder of the base model; empty for a provider's."""
    shape: ModelConfig | None = None
    """Rank and scale of the adapter, as its run had them; None for a provider's."""
    run_id: str = ""
    """Of a checkpoint, like `step`, `adapter` and `sha256`."""
    step: int = 0
    adapter: str = ""
    """Folder of the adapter, relative to the project."""
    sha256: str = ""
    """Of its `adapter_model.safetensors`: another adapter in its place is refused."""


class SystemPrompt(Value):
    """A variant: what stands in place of the agent's system message."""

    name: str
    text: str


class Entry(NamedTuple):
    """One contestant under one variant: what makes attempts of its own."""

    contestant: Contestant
    variant: SystemPrompt | None

    @property
    def label(self) -> str:
        """Stands in each of its attempts."""
        name = self.contestant.name
        return f"{name} · {self.variant.name}" if self.variant else name


class EvaluationPlan(Value):
    """Settled when an evaluation starts; it stands in its run.json."""

    contestants: list[Contestant]
    """The first is the one that the others are compared with."""
    variants: list[SystemPrompt] = Field(default_factory=list)
    """None: every agent sends the system message that it has."""
    attempts: int
    """Of each entry at each scenario."""
    scenarios: int
    """How many there are; the run folder keeps them in `scenarios.jsonl`."""
    source: str
    """Where they were taken from: `train`, `validation`, or a file."""
    seed: int
    demonstrate: SelectDemonstrations | None = None
    """What becomes a demonstration when all attempts are there."""

    @property
    def entries(self) -> list[Entry]:
        """Contestants in their order, each under all variants. Siblings are numbered so: entry ·
        attempts + attempt."""
        variants: list[SystemPrompt | None] = [*self.variants] or [None]
        return [Entry(one, variant) for one in self.contestants for variant in variants]

    @property
    def size(self) -> int:
        """Siblings of one scenario."""
        return len(self.entries) * self.attempts

    @property
    def total(self) -> int:
        """Attempts of the whole evaluation."""
        return self.size * self.scenarios
