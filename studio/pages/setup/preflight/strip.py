"""Preflight on one line, for a narrow window: memory, time, baseline, and Train."""

from collections.abc import Sequence

from PySide6.QtCore import Signal
from PySide6.QtGui import QPaintEvent
from PySide6.QtWidgets import QWidget

from studio.theme.plain_tooltips import set_tip
from studio.widgets.controls.buttons import Button
from studio.widgets.layouts import hbox
from studio.widgets.painting import paint
from studio.widgets.text.phrase import Phrase, Span

GAP = Span("   ·   ", "faint")
FACTS = ("memory", "time", "baseline")


class PreflightStrip(QWidget):
    """Preflight strip: `set_fact("time", spans)`, `set_train`. Emits `unfolded(bool)` when the
    panel is asked for, and `train_wanted`."""

    unfolded = Signal(bool)
    train_wanted = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._facts: dict[str, Sequence[Span]] = {}
        self._words = Phrase((), "label")
        self._panel = Button("Preflight", "outlined", icon="chevron-down", height=28)
        self._train = Button("Train", "primary", icon="play", height=28)
        self._open = False
        self._panel.clicked.connect(lambda: self.set_open(not self._open))
        self._train.clicked.connect(self.train_wanted)
        self.setFixedHeight(44)
        line = hbox((self._words, 1), self._panel, self._train, parent=self, spacing=8)
        line.setContentsMargins(32, 0, 24, 0)

    def set_fact(self, fact: str, spans: Sequence[Span]) -> None:
        """Set the text of `fact`, one of FACTS."""
        self._facts[fact] = spans
        spread: list[Span] = []
        for name in FACTS:
            if found := self._facts.get(name):
                spread += [GAP, *found] if spread else found
        self._words.set_spans(spread)
        set_tip(self._words, self._words.words())

    def set_train(self, words: str, enabled: bool, why: str) -> None:
        """Set label and state of the Train button; `why` is its tooltip."""
        self._train.set_words(words)
        self._train.setEnabled(enabled)
        set_tip(self._train, why)

    def set_open(self, opened: bool) -> None:
        """Show in the button whether the panel is unfolded, and emit a change."""
        if opened != self._open:
            self._open = opened
            self._panel.set_words("Back to setup" if opened else "Preflight")
            self._panel.set_icon("chevron-up" if opened else "chevron-down")
            self.unfolded.emit(opened)

    def paintEvent(self, event: QPaintEvent) -> None:
        with paint.painting(self) as painter:
            paint.box(painter, self.rect().adjusted(16, 2, -16, -2), "surface", "border", 8)
