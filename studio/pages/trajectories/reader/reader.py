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
    turn_at,
    turn_rows,
)
from studio.store.runs.chat import turn_prompt
from studio.text import formatting
from studio.theme.plain_tooltips import set_tip
from studio.widgets.controls.buttons import Button, IconButton
from studio.widgets.layouts import hbox, vbox
from studio.widgets.text.text import Text
from studio.widgets.transcript.hits import Patterns
from studio.widgets.transcript.items import Item
from studio.widgets.transcript.view import Transcript

EVIDENCE_PX, NARROW_EVIDENCE_PX, EVIDENCE_FITS_PX = 360, 320, 920
CHAT_TIP = "Send the prompt of this turn to several models, as it is or edited  O"
NO_CHAT_TIP = "The prompt has images, which the side-by-side chat does not send."


class Reader(QWidget):
    """Reader. Emits `tint_chosen(name)` for the token colours, `call_wanted(key)`, and
    `chat_wanted(prompt)` to open the prompt of a turn in the side-by-side chat."""

    tint_chosen = Signal(str)
    call_wanted = Signal(str)
    chat_wanted = Signal(object)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._tint = TintBar()
        self.transcript = Transcript()
        self._outline, self.evidence = Outline(), EvidencePanel()
        self._chat = Button("Open in chat", "quiet", icon="message-square-text", height=28)
        set_tip(self._chat, CHAT_TIP)
        self._searched = False
        """Whether the filter searches text."""
        self._hit_words = Text("", "label", 400, "muted")
        self._hit_before = IconButton("chevron-up", "Previous hit", key="Shift+F3")
        self._hit_after = IconButton("chevron-down", "Next hit", key="F3")
        self._shown: Evidence | None = None
        self._items: list[Item] = []
        self._build()
        self._tint.tint_chosen.connect(lambda name: self.set_tint(name, notify=True))
        self.transcript.tint_chosen.connect(lambda name: self.set_tint(name, notify=True))
        self.transcript.hits_changed.connect(self._show_hits)
        self._chat.clicked.connect(self.open_chat)
        self._hit_before.clicked.connect(lambda: self.transcript.next_hit(-1))
        self._hit_after.clicked.connect(lambda: self.transcript.next_hit(1))
        self._outline.row_wanted.connect(self.transcript.focus_row)
        self.transcript.row_focused.connect(self._outline.show_row)
        self.evidence.passage_wanted.connect(self.show_passage)
        self.evidence.row_wanted.connect(self.transcript.focus_row)
        self.evidence.call_wanted.connect(self.call_wanted)

    def show_evidence(self, evidence: Evidence) -> None:
        """Show a trajectory with its evidence; an update of the same one keeps the position."""
        record, before = evidence.record, self._shown
        same = before is not None and before.record.id == record.id
        if before is None or before.record is not record:
            self._items = items_of(record, weights=evidence.weights)
            self.transcript.set_items(self._items, keep_place=same, largest=evidence.largest)
        self._shown = evidence
        self._allow_chat(not any(message.images for message in record.messages))
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

    def set_hits(self, patterns: Patterns) -> None:
        """Highlight the text matches of the filter. `patterns`: kind of text → pattern (None: not
        searched); without any, the number of matches and its buttons are hidden."""
        self._searched = any(patterns.values())
        self.transcript.set_hits(patterns)

    def _show_hits(self, current: int, count: int) -> None:
        place = f"{current + 1} of {count:,}" if current >= 0 else formatting.plural(count, "hit")
        self._hit_words.set_words(place)
        self._hit_words.setVisible(self._searched)
        self._fit()
        for button in (self._hit_before, self._hit_after):
            button.setVisible(self._searched)
            button.setEnabled(count > 0)

    def open_chat(self) -> None:
        """Open the prompt of the focused turn, or of the last one, in the side-by-side chat."""
        if self._shown is not None and self._chat.isEnabled():
            turn = turn_at(self._items, self.transcript.focused_row())
            self.chat_wanted.emit(turn_prompt(self._shown.record, turn))

    def _allow_chat(self, allowed: bool) -> None:
        self._chat.setEnabled(allowed)
        set_tip(self._chat, CHAT_TIP if allowed else NO_CHAT_TIP)

    def next_divergence(self, turns: list[int]) -> None:
        """Scroll to the next of `turns` (from 1) below the focused row, wrapping around."""
        rows = turn_rows(self._items)
        places = [rows[turn - 1] for turn in turns if turn <= len(rows)]
        after = [row for row in places if row > self.transcript.focused_row()]
        if places:
            self.transcript.focus_row((after or places)[0])

    def set_tint(self, name: str, notify: bool = False) -> None:
        """Set what the token colours show: advantage, logprob, mask or none; another `name` is
        ignored. `notify` also emits `tint_chosen`."""
        if name in [key for _, key in TINTS]:
            self.transcript.set_tint(name)
            self._show_legend()
            if notify:
                self.tint_chosen.emit(name)

    def _show_legend(self) -> None:
        self._tint.show_tint(self.transcript.tint(), self.transcript.largest())

    def _build(self) -> None:
        bar = hbox(
            (self._tint, 1),
            self._hit_words,
            self._hit_before,
            self._hit_after,
            self._chat,
            margins=(0, 0, 16, 0),
            spacing=8,
        )
        self._show_hits(-1, 0)
        middle = vbox(bar, (self.transcript, 1), spacing=0)
        hbox(self._outline, (middle, 1), self.evidence, parent=self, spacing=12)

    def _fit(self) -> None:
        """Drop what a narrow bar has no space for."""
        room = self.width() - (self.evidence.width() if self.evidence.isVisible() else 0)
        self._chat.set_icon_only(room < (820 if self._searched else 700))

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.evidence.setVisible(self.width() >= EVIDENCE_FITS_PX)
        wide = self.width() >= 1240
        self.evidence.setFixedWidth(EVIDENCE_PX if wide else NARROW_EVIDENCE_PX)
        self._outline.setVisible(self.width() >= 700)
        self._fit()
