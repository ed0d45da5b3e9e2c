"""Blind grading: the user labels a group before seeing the judge's scores."""

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from engine.protocol.records.labels import Agreement
from studio.store.projects.grading import WANTED, half_width
from studio.text import formatting
from studio.theme.plain_tooltips import set_tip
from studio.widgets.cards.card import Card
from studio.widgets.controls.buttons import Button
from studio.widgets.controls.toggle import Toggle
from studio.widgets.layouts import hbox, vbox
from studio.widgets.tables.meter import Meter
from studio.widgets.text.text import Text


class GradingCard(Card):
    """Card with the progress of blind grading; emits `next_wanted`, and `order_chosen(bool)` when
    the user chooses the order of the review queue, or chance."""

    next_wanted = Signal()
    order_chosen = Signal(bool)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__("Blind grading", parent=parent)
        self._words = Text("", "label", 400, "muted", wrap=True)
        self._meter = Meter("Groups graded")
        self._meter.set_share(0.0, "human")
        self._next = Button("Grade the next group", "outlined", key="B", height=32)
        self._by_queue = Toggle("Review queue order")
        set_tip(
            self._by_queue,
            "Start with groups where the judge is uncertain or disagrees with the rule-based "
            "rewards. These groups are hard, so measured agreement is lower than on random groups.",
        )
        left = vbox(self._words, self._meter, spacing=8)
        right = vbox(self._next, self._by_queue, spacing=6)
        line = hbox((left, 1), right, spacing=16)
        self.body.addLayout(line)
        self._next.clicked.connect(self.next_wanted)
        self._by_queue.toggled.connect(self.order_chosen)

    def set_by_queue(self, on: bool) -> None:
        """Set the switch for the order of the review queue, without emitting."""
        self._by_queue.blockSignals(True)
        self._by_queue.setChecked(on)
        self._by_queue.blockSignals(False)

    def show_progress(self, graded: int, row: Agreement | None, possible: bool) -> None:
        """Show the number of groups graded blind, and how many more would narrow the interval of
        the agreement `row` (None: not measured). `possible`: the run has stored groups."""
        assert self.header is not None
        self.header.set_words(f"{graded} of {max(WANTED, graded)} done" if possible else "")
        self._next.setEnabled(possible)
        self._meter.set_share(min(1.0, graded / WANTED), "human")
        if not possible:
            self._words.set_words("No run has stored groups yet.")
            return
        start = "Judge scores stay hidden until you apply your label."
        tau = row.tau if row else None
        left = max(0, WANTED - graded)
        if tau is not None and left:
            width = half_width(row.groups if row else 1, (tau.high - tau.low) / 2, left)
            more = formatting.plural(left, "more group")
            start += f" Grading {more} would narrow the interval to about ± {width:.2f}."
        self._words.set_words(start)
