"""The machine's graphics cards, and what a run will hold on them."""

from typing import Any, Literal

from pydantic import Field

from engine.protocol.base import Value


class CardProcess(Value):
    """A program that holds memory of a card."""

    pid: int
    bytes: int | None = None
    """None where the driver does not say."""
    name: str = ""
    """Empty where nobody may read it."""
    ours: bool = False
    """Whether it is this engine's, or a child of it."""


class Card(Value):
    """A graphics card as its driver describes it now. What it does not say is None, never 0."""

    index: int
    """Among all of the machine, in the order of the bus."""
    uuid: str
    name: str
    total_bytes: int | None = None
    used_bytes: int | None = None
    free_bytes: int | None = None
    busy_percent: float | None = None
    """Share of the last moments in which some kernel ran."""
    temperature_c: float | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    capability: tuple[int, int] | None = None
    """CUDA compute capability: 9, 0."""
    driver: str | None = None
    cuda: tuple[int, int] | None = None
    """The newest CUDA that the driver can run."""
    processes: tuple[CardProcess, ...] | None = None

    @property
    def ours_bytes(self) -> int:
        """What this engine and its children hold."""
        return sum(p.bytes or 0 for p in self.processes or () if p.ours)

    @property
    def others_bytes(self) -> int | None:
        """What everybody else holds, the driver's own with it."""
        return None if self.used_bytes is None else max(0, self.used_bytes - self.ours_bytes)

    @property
    def strangers(self) -> tuple[CardProcess, ...]:
        """Other programs, the largest first."""
        others = (p for p in self.processes or () if not p.ours)
        return tuple(sorted(others, key=lambda p: -(p.bytes or 0)))


class MemoryPart(Value):
    """Bytes under one name, in each phase."""

    name: str
    sampling_bytes: int
    training_bytes: int


class CardPlan(Value):
    """What a run will hold on one card."""

    index: int
    name: str
    total_bytes: int
    others_bytes: int
    """Held by others when it was asked."""
    parts: tuple[MemoryPart, ...]
    sampling_bytes: int
    training_bytes: int
    peak_bytes: int
    """The larger phase, or both together where they overlap."""

    @property
    def room_bytes(self) -> int:
        return max(0, self.total_bytes - self.others_bytes)

    @property
    def fits(self) -> bool:
        return self.peak_bytes <= self.room_bytes


class MemoryFix(Value):
    """Settings that need less memory, priced."""

    words: str
    values: dict[str, Any]
    """Dotted keys of project.toml."""
    saves_bytes: int
    peak_bytes: int
    """Of the fullest card, afterwards."""
    fits: bool


class VramPlan(Value):
    """Of a whole run."""

    cards: tuple[CardPlan, ...]
    overlaps: bool = False
    """Whether the next attempts are sampled while the trainer works."""
    memory_share: float | None = None
    """What vLLM is started with; None where nothing is sampled by vLLM."""
    sleep: Literal["off", "cache", "all"] = "off"
    """What vLLM gives back while the trainer works."""
    rows: int = 0
    """Attempts that have room at once, of `rows_wanted`."""
    rows_wanted: int = 0
    fixes: tuple[MemoryFix, ...] = Field(default=())
    """The least harmful first."""

    @property
    def fits(self) -> bool:
        return all(card.fits for card in self.cards)

    @property
    def fullest(self) -> CardPlan:
        return max(self.cards, key=lambda card: card.peak_bytes - card.room_bytes)


class Check(Value):
    """One line of `doctor`."""

    name: str
    state: Literal["good", "warn", "bad"]
    words: str
    hint: str = ""
