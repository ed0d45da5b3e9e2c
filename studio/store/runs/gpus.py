"""What the ticks of a run say of its graphics cards, and the last minutes of it. Plain Python."""

from collections import deque
from dataclasses import dataclass, field

from engine.protocol.events.run import ProgressTicked
from engine.protocol.records.hardware import Card
from studio.text import formatting

REMEMBERED = 150
"""Looks at a card; one is taken every two seconds."""


@dataclass
class CardHistory:
    """One card as it is now, and how full and busy it was."""

    card: Card
    memory: deque[float] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    """Shares of its memory; nan where it was not told."""
    busy: deque[float] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    """Shares of the time."""

    def take(self, card: Card) -> None:
        self.card = card
        total, used, busy = card.total_bytes, card.used_bytes, card.busy_percent
        self.memory.append(used / total if total and used is not None else float("nan"))
        self.busy.append(busy / 100 if busy is not None else float("nan"))


@dataclass
class CardWatch:
    """The cards of one run after another; those of the run before are forgotten."""

    run_id: str = ""
    cards: dict[str, CardHistory] = field(default_factory=dict)
    _seen: tuple[Card, ...] = ()

    def take(self, run_id: str, tick: ProgressTicked | None) -> bool:
        """Whether something new was said. The same look may come with several ticks."""
        if run_id != self.run_id:
            self.run_id, self.cards, self._seen = run_id, {}, ()
        if tick is None or not tick.cards or tick.cards == self._seen:
            return False
        self._seen = tick.cards
        for card in tick.cards:
            self.cards.setdefault(card.uuid, CardHistory(card)).take(card)
        return True


def card_words(card: Card) -> str:
    """`62 GB of 141 GB · 87 % busy · 64 °C`; what the driver does not say is left out."""
    words = []
    if card.used_bytes is not None and card.total_bytes:
        words.append(f"{formatting.size(card.used_bytes)} of {formatting.size(card.total_bytes)}")
    if card.busy_percent is not None:
        words.append(f"{formatting.percent(card.busy_percent / 100)} busy")
    if card.temperature_c is not None:
        words.append(f"{card.temperature_c:.0f} °C")
    return " · ".join(words) or "its driver says nothing"
