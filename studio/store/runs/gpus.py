"""State and recent history of a run's graphics cards, from its progress events."""

from collections import deque
from dataclasses import dataclass, field

from engine.protocol.events.run import ProgressTicked
from engine.protocol.records.machine.hardware import Card
from studio.text import formatting

REMEMBERED = 150
"""Number of stored measurements; one is taken every two seconds."""


@dataclass
class CardHistory:
    """Current state of a card, with recent memory use and load."""

    card: Card
    memory: deque[float] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    """Recent used shares of memory, 0 to 1; nan if not reported."""
    busy: deque[float] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    """Recent shares of time with a running kernel."""

    def take(self, card: Card) -> None:
        """Append the measurement of a card to its history."""
        self.card = card
        total, used, busy = card.total_bytes, card.used_bytes, card.busy_percent
        self.memory.append(used / total if total and used is not None else float("nan"))
        self.busy.append(busy / 100 if busy is not None else float("nan"))


@dataclass
class CardWatch:
    """History of the graphics cards of one run; another run clears it."""

    run_id: str = ""
    cards: dict[str, CardHistory] = field(default_factory=dict)
    _seen: tuple[Card, ...] = ()

    def take(self, run_id: str, tick: ProgressTicked | None) -> bool:
        """Store the GPU measurements of a progress event (None: ignored); return whether they are
        new, since events may repeat them."""
        if run_id != self.run_id:
            self.run_id, self.cards, self._seen = run_id, {}, ()
        if tick is None or not tick.cards or tick.cards == self._seen:
            return False
        self._seen = tick.cards
        for card in tick.cards:
            self.cards.setdefault(card.uuid, CardHistory(card)).take(card)
        return True


def card_words(card: Card) -> str:
    """Describe a card: `62 GB of 141 GB · 87 % busy · 64 °C`, without unreported values."""
    words = []
    if card.used_bytes is not None and card.total_bytes:
        words.append(f"{formatting.size(card.used_bytes)} of {formatting.size(card.total_bytes)}")
    if card.busy_percent is not None:
        words.append(f"{formatting.percent(card.busy_percent / 100)} busy")
    if card.temperature_c is not None:
        words.append(f"{card.temperature_c:.0f} °C")
    return " · ".join(words) or "no data from its driver"
