"""Gallery of sample projects that can be copied."""

import math
from collections.abc import Sequence

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QGridLayout, QWidget

from engine.protocol.records.choices import Sample
from studio.widgets.cards.sample_card import SampleCard
from studio.widgets.controls.buttons import Button
from studio.widgets.layouts import hbox, vbox
from studio.widgets.text.text import Text

DRAWINGS = {
    "hello": "yes-no-maybe",
    "find_the_flag": "find-the-flag",
    "game_2048": "2048",
    "tic_tac_toe": "tic-tac-toe",
    "temporal_clue": "timeline-puzzle",
    "text_to_sql": "ask-the-database",
}
BEGIN_WITH = "hello"


class SampleGallery(QWidget):
    """Gallery of samples; emits `chosen(sample)`, `described()` for a generated project, and
    `imported()` for one of verifiers or Inspect."""

    chosen = Signal(object)
    described = Signal()
    imported = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._samples: list[Sample] = []
        self._first_start = False
        self._most = 3
        self._cards: list[SampleCard] = []
        self._title = Text("Loading samples…", "heading")
        self._big_title = Text("Sample projects", "display")
        self._words = Text("", "label", 400, "muted", elide=True)
        self._grid = QGridLayout()
        self._grid.setSpacing(12)
        head = hbox(self._big_title, self._title, (self._words, 1), spacing=10)
        describe = Button("New from a description…", "outlined", icon="sparkles")
        describe.clicked.connect(self.described)
        bridge = Button("New from verifiers or Inspect…", "outlined", icon="box")
        bridge.clicked.connect(self.imported)
        head.addWidget(bridge)
        head.addWidget(describe)
        vbox(head, self._grid, parent=self, margins=(0, 8, 0, 0), spacing=12)
        self._say()

    def set_samples(self, samples: Sequence[Sample], first_start: bool) -> None:
        """Show the samples; on the `first_start` (no project exists yet), recommend one to begin
        with."""
        if list(samples) == self._samples and first_start == self._first_start:
            return
        self._samples, self._first_start = list(samples), first_start
        self._say()
        self._fill()

    def set_columns(self, most: int) -> None:
        """Lay out the cards in at most `most` columns."""
        if most != self._most:
            self._most = most
            self._place()

    def focus_first(self) -> None:
        if self._cards:
            self._cards[0].setFocus()

    def _say(self) -> None:
        begin = self._first_start and bool(self._samples)
        self._big_title.setVisible(begin)
        self._title.setVisible(not begin)
        self._title.set_words("Start from a sample" if self._samples else "Loading samples…")
        words = "Working projects with agent, scenarios and rewards."
        self._words.set_words(
            words if self._samples else "Samples appear once the engine is running."
        )

    def _fill(self) -> None:
        for card in self._cards:
            self._grid.removeWidget(card)
            card.deleteLater()
        self._cards = [self._card(sample) for sample in self._samples]
        self._place()

    def _card(self, sample: Sample) -> SampleCard:
        badge = "recommended" if self._first_start and sample.name == BEGIN_WITH else ""
        drawing = DRAWINGS.get(sample.name, sample.name.replace("_", "-"))
        card = SampleCard(drawing, sample.title, sample.duration, sample.words, badge=badge)
        card.chosen.connect(lambda _: self.chosen.emit(sample))
        return card

    def _place(self) -> None:
        for column in range(self._grid.columnCount()):
            self._grid.setColumnStretch(column, 0)
        columns = even_columns(len(self._cards), self._most)
        for place, card in enumerate(self._cards):
            self._grid.addWidget(card, place // columns, place % columns)
        for column in range(columns):
            self._grid.setColumnStretch(column, 1)


def even_columns(count: int, most: int) -> int:
    """Return the fewest columns that need as many rows as `most` columns do: 6 cards are 3 + 3,
    not 4 + 2."""
    rows = max(1, math.ceil(count / most))
    return max(1, math.ceil(count / rows))
