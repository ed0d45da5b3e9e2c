"""Graphics cards of a machine, and the memory a run will use on them."""

from typing import Any, Literal

from pydantic import Field

from engine.protocol.base import Value


class CardProcess(Value):
    """Process that uses memory of a graphics card."""

    pid: int
    bytes: int | None = None
    """Used memory in bytes; None if the driver does not report it."""
    name: str = ""
    """Process name; empty if not readable."""
    ours: bool = False
    """Whether it belongs to this engine or its children."""


class Card(Value):
    """Current state of a graphics card from its driver. Unreported values are None, never 0."""

    index: int
    """Index among all cards of the machine, in bus order."""
    uuid: str
    name: str
    total_bytes: int | None = None
    used_bytes: int | None = None
    free_bytes: int | None = None
    busy_percent: float | None = None
    """Share of recent time in which a kernel was running, in percent."""
    temperature_c: float | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    capability: tuple[int, int] | None = None
    """CUDA compute capability, as (9, 0)."""
    driver: str | None = None
    cuda: tuple[int, int] | None = None
    """Newest CUDA version that the driver supports."""
    processes: tuple[CardProcess, ...] | None = None

    @property
    def ours_bytes(self) -> int:
        """Memory used by this engine and its children, in bytes."""
        return sum(p.bytes or 0 for p in self.processes or () if p.ours)

    @property
    def others_bytes(self) -> int | None:
        """Memory used by other programs and the driver, in bytes; None if the total use is
        unknown."""
        return None if self.used_bytes is None else max(0, self.used_bytes - self.ours_bytes)

    @property
    def strangers(self) -> tuple[CardProcess, ...]:
        """Processes that do not belong to this engine, largest first."""
        others = (p for p in self.processes or () if not p.ours)
        return tuple(sorted(others, key=lambda p: -(p.bytes or 0)))


class MemoryPart(Value):
    """Memory of one component in each phase, in bytes."""

    name: str
    sampling_bytes: int
    training_bytes: int


class CardPlan(Value):
    """Memory that a run will use on one card."""

    index: int
    name: str
    total_bytes: int
    others_bytes: int
    """Memory used by others at the time of planning, in bytes."""
    parts: tuple[MemoryPart, ...]
    sampling_bytes: int
    training_bytes: int
    peak_bytes: int
    """Peak memory: the larger phase, or both together if they overlap."""

    @property
    def room_bytes(self) -> int:
        return max(0, self.total_bytes - self.others_bytes)

    @property
    def fits(self) -> bool:
        return self.peak_bytes <= self.room_bytes


class MemoryFix(Value):
    """Settings that need less memory, with their cost."""

    words: str
    values: dict[str, Any]
    """Values by dotted key of project.toml."""
    saves_bytes: int
    peak_bytes: int
    """Peak memory of the fullest card after the change, in bytes."""
    fits: bool


class VramPlan(Value):
    """GPU memory plan of a run."""

    cards: tuple[CardPlan, ...]
    overlaps: bool = False
    """Whether the next rollouts are sampled while the policy trains."""
    memory_share: float | None = None
    """Memory share that vLLM is started with; None without vLLM."""
    sleep: Literal["off", "cache", "all"] = "off"
    """GPU memory that vLLM frees while the policy trains."""
    rows: int = 0
    """Number of concurrent rollouts that fit, of `rows_wanted`."""
    rows_wanted: int = 0
    fixes: tuple[MemoryFix, ...] = Field(default=())
    """Possible fixes, the least harmful first."""

    @property
    def fits(self) -> bool:
        return all(card.fits for card in self.cards)

    @property
    def fullest(self) -> CardPlan:
        return max(self.cards, key=lambda card: card.peak_bytes - card.room_bytes)


class Check(Value):
    """Result of one check of `doctor`."""

    name: str
    state: Literal["good", "warn", "bad"]
    words: str
    hint: str = ""
