"""GPU card of an active run: memory, utilization, temperature, power, other processes."""

from PySide6.QtWidgets import QHBoxLayout, QWidget

from engine.protocol.records.machine.hardware import Card as GraphicsCard
from studio.store.runs.gpus import CardHistory, CardWatch
from studio.store.runs.state import RunState
from studio.text import formatting
from studio.widgets.cards.card import Card
from studio.widgets.cards.key_values import KeyValues
from studio.widgets.charts.sparkline import Sparkline
from studio.widgets.layouts import hbox, vbox
from studio.widgets.tables.meter import MeterRow
from studio.widgets.tables.stack_bar import StackRow, Stretch
from studio.widgets.text.text import Text

MOST_STRANGERS = 3
HOT_C = 85
FIGURE_PX = 106
WORTH_NAMING = 50_000_000
"""Minimum memory, in bytes, for naming another process; the desktop uses less."""


class CardsCard(Card):
    """Card with all GPUs of the run; hidden while none is known."""

    def __init__(self) -> None:
        super().__init__("GPU", " ")
        self._watch = CardWatch()
        self._blocks: list[CardBlock] = []
        self.body.setSpacing(10)
        self.hide()

    def show_run(self, state: RunState) -> None:
        changed = self._watch.take(state.run_id, state.progress)
        cards = list(self._watch.cards.values())
        self.setVisible(state.active and bool(cards))
        if not changed:
            return
        assert self.header is not None
        self.header.set_words(cards[0].card.name if len(cards) == 1 else f"{len(cards)} GPUs")
        while len(self._blocks) < len(cards):
            block = CardBlock()
            self._blocks.append(block)
            self.body.addWidget(block)
        for place, block in enumerate(self._blocks):
            block.setVisible(place < len(cards))
        for block, history in zip(self._blocks, cards, strict=False):
            block.show_history(history, several=len(cards) > 1)


class CardBlock(QWidget):
    """Block of one GPU."""

    def __init__(self) -> None:
        super().__init__()
        self._name = Text("", "label", 600)
        self._memory = StackRow("Memory", figure_px=FIGURE_PX)
        self._busy, self._power = (
            MeterRow("Utilization", "plot-2", figure_px=FIGURE_PX),
            MeterRow("Power", "plot-4", figure_px=FIGURE_PX),
        )
        self._heat = KeyValues(1)
        self._lines = [Sparkline("Memory"), Sparkline("Utilization")]
        self._strangers = Text("", "caption", tone="warn", wrap=True)
        vbox(
            self._name,
            self._memory,
            self._busy,
            self._power,
            self._heat,
            6,
            self._sparklines(),
            4,
            self._strangers,
            parent=self,
            spacing=0,
        )

    def _sparklines(self) -> QHBoxLayout:
        line = hbox(spacing=12)
        for words, chart in zip(("Memory, 5 min", "Busy, 5 min"), self._lines, strict=True):
            cell = vbox(Text(words, "caption", tone="faint"), chart, spacing=2)
            line.addLayout(cell, 1)
        return line

    def show_history(self, history: CardHistory, several: bool) -> None:
        """Show a GPU's state and recent use; its name only if the run has `several`."""
        card = history.card
        self._name.set_words(f"GPU {card.index} · {card.name}")
        self._name.setVisible(several)
        self._show_memory(card)
        busy = card.busy_percent
        share = busy / 100 if busy is not None else None
        self._busy.set_value(
            share, formatting.percent(share) if share is not None else formatting.ABSENT
        )
        self._show_power(card)
        heat = (
            f"{card.temperature_c:.0f} °C" if card.temperature_c is not None else formatting.ABSENT
        )
        hot = card.temperature_c is not None and card.temperature_c >= HOT_C
        self._heat.set_values([("Temperature", f"{heat}, hot" if hot else heat)])
        self._lines[0].set_values(history.memory, "plot-1")
        self._lines[1].set_values(history.busy, "plot-2")
        words = strangers_words(card)
        self._strangers.set_words(words)
        self._strangers.setVisible(bool(words))

    def _show_memory(self, card: GraphicsCard) -> None:
        total, used, others = card.total_bytes, card.used_bytes, card.others_bytes
        if not total or used is None or others is None:
            self._memory.set_stretches([], formatting.ABSENT)
            return
        stretches = [
            Stretch("this run", (used - others) / total, "plot-1"),
            Stretch("other processes", others / total, "plot-7"),
        ]
        decimals = 0 if total >= 100e9 else 1
        words = f"{used / 1e9:.{decimals}f} / {total / 1e9:.{decimals}f} GB"
        self._memory.set_stretches(stretches, words)

    def _show_power(self, card: GraphicsCard) -> None:
        if card.power_w is None:
            self._power.set_value(None, formatting.ABSENT)
            return
        limit = card.power_limit_w
        words = f"{card.power_w:.0f} W" if not limit else f"{card.power_w:.0f} / {limit:.0f} W"
        self._power.set_value(card.power_w / limit if limit else None, words)


def strangers_words(card: GraphicsCard) -> str:
    """List other processes on the GPU: `python (process 4242) uses 6.1 GB`."""
    large = [p for p in card.strangers if p.bytes is None or p.bytes >= WORTH_NAMING]
    lines = []
    for process in large[:MOST_STRANGERS]:
        name = process.name or "Another program"
        held = f"uses {formatting.size(process.bytes)}" if process.bytes else ("is using this GPU")
        lines.append(f"{name} (process {process.pid}) {held}.")
    if (more := len(large) - MOST_STRANGERS) > 0:
        lines.append(f"And {formatting.plural(more, 'other program')} on this GPU.")
    return "\n".join(lines)
