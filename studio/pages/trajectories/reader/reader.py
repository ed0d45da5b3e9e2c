"""Reader: outline, transcript with coloured tokens, and evidence."""

from PySide6.QtCore import Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QWidget

from studio.pages.trajectories.reader.evidence import Evidence, EvidencePanel
from studio.pages.trajectories.reader.outline import Outline
from studio.pages.trajectories.reader.tint_legend import TINTS, TintBar
from studio.pages.trajectories.reader.transcript_rows import (
    items_of,
    outline_of,
    row_of_passage,
    turn_rows,
)
from studio.widgets.layouts import hbox, vbox
from studio.widgets.transcript.items import Item
from studio.widgets.transcript.view import Transcript

EVIDENCE_PX, NARROW_EVIDENCE_PX, EVIDENCE_FITS_PX = 360, 320, 920


class Reader(QWidget):
    """Reader. Emits `tint_chosen(name)` for the token colours and `call_wanted(key)`."""

    tint_chosen = Signal(str)
    call_wanted = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._tint = TintBar()
        self.transcript = Transcript()
        self._outline, self.evidence = Outline(), EvidencePanel()
        self._shown: Evidence | None = None
        self._items: list[Item] = []
        self._build()
        self._tint.tint_chosen.connect(lambda name: self.set_tint(name, notify=True))
        self.transcript.tint_chosen.connect(lambda name: self.set_tint(name, notify=True))
        self._outline.row_wanted.connect(self.transcript.focus_row)
        self.transcript.row_focused.connect(self._outline.show_row)
        self.evidence.passage_wanted.connect(self.show_passage)
        self.evidence.call_wanted.connect(self.call_wanted)

    def show_evidence(self, evidence: Evidence) -> None:
        """Show a trajectory with its evidence; an update of the same one keeps the position."""
        record, before = evidence.record, self._shown
        same = before is not None and before.record.id == record.id
        if before is None or before.record is not record:
            self._items = items_of(record, weights=evidence.weights)
            self.transcript.set_items(self._items, keep_place=same, largest=evidence.largest)
        self._shown = evidence
        self._show_legend()
        self._outline.show_outline(record, outline_of(self._items))
        self.evidence.show_evidence(evidence)

    def clear(self) -> None:
        """Clear the reader on a change of run, because trajectory ids repeat between runs."""
        self._shown, self._items = None, []
        self.transcript.set_items([])

    def show_passage(self, quote: str) -> bool:
        """Scroll to a cited passage; returns False if it is not in the transcript."""
        if self.transcript.show_passage(quote):
            return True
        row = row_of_passage(self._shown.record, self._items, quote) if self._shown else -1
        self.transcript.focus_row(row)
        return row >= 0

    def next_divergence(self, turns: list[int]) -> None:
        """Scroll to the next of `turns` (from 1) below the focused row, wrapping around."""
        rows = turn_rows(self._items)
        places = [rows[turn - 1] for turn in turns if turn <= len(rows)]
        after = [row for row in places if row > self.transcript.focused_row()]
        if places:
            self.transcript.focus_row((after or places)[0])

    def set_tint(self, name: str, notify: bool = False) -> None:
        """Set what the token colours show; `notify` also emits `tint_chosen`."""
        if name in [key for _, key in TINTS]:
            self.transcript.set_tint(name)
            self._show_legend()
            if notify:
                self.tint_chosen.emit(name)

    def _show_legend(self) -> None:
        self._tint.show_tint(self.transcript.tint(), self.transcript.largest())

    def _build(self) -> None:
        middle = vbox(self._tint, (self.transcript, 1), spacing=0)
        hbox(self._outline, (middle, 1), self.evidence, parent=self, spacing=12)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.evidence.setVisible(self.width() >= EVIDENCE_FITS_PX)
        wide = self.width() >= 1240
        self.evidence.setFixedWidth(EVIDENCE_PX if wide else NARROW_EVIDENCE_PX)
        self._outline.setVisible(self.width() >= 700)
