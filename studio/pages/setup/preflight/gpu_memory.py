"""GPU memory estimate: both phases as stacked bars, and fixes if it does not fit."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from PySide6.QtCore import QRectF, QSize, Signal
from PySide6.QtGui import QPaintEvent
from PySide6.QtWidgets import QWidget

from engine.protocol.records.machine.hardware import CardPlan, MemoryFix, MemoryPart, VramPlan
from studio.pages.setup.preflight.drawings import Drawn
from studio.text import formatting
from studio.theme.plain_tooltips import set_tip
from studio.widgets.controls.buttons import Button
from studio.widgets.layouts import add, hbox, vbox
from studio.widgets.painting import paint
from studio.widgets.tables.stack_bar import StackRow, Stretch
from studio.widgets.text.phrase import Phrase, Span
from studio.widgets.text.text import Text

MOST_FIXES = 5
WORDS_PX, FIGURE_PX = 62, 64
PHASES = (("Sample", "sampling_bytes"), ("Train", "training_bytes"))


@dataclass(frozen=True)
class Group:
    """Segment of the bar: label, colour token, names of its parts of the estimate."""

    words: str
    token: str
    parts: tuple[str, ...]


GROUPS = (
    Group("model", "plot-3", ("model",)),
    Group("adapter and optimizer", "plot-4", ("adapter and optimizer",)),
    Group("activations", "plot-2", ("activations",)),
    Group("logits", "plot-6", ("logits",)),
    Group("sampler weights", "plot-1", ("vLLM's model", "sampler's copies")),
    Group("KV cache", "plot-8", ("keys and values",)),
    Group("sampler activations", "plot-5", ("prompts", "vLLM's activations", "vLLM's graphs")),
)
REST = Group("CUDA context, allocator", "plot-7", ())
"""Segment for parts without a group."""


def grouped(parts: Sequence[MemoryPart], phase: str) -> list[tuple[Group, int]]:
    """Sum the bytes of memory parts by group in a phase: `sampling_bytes` or `training_bytes`."""
    named = {name for group in GROUPS for name in group.parts}
    found = []
    for group in (*GROUPS, REST):
        own = (p for p in parts if p.name in group.parts or (group is REST and p.name not in named))
        found.append((group, sum(getattr(part, phase) for part in own)))
    return found


class CardMemory(QWidget):
    """GPU memory estimate: `show_plan(plan)`; emits `fix_chosen(fix)` and `undo_wanted(values)`."""

    fix_chosen = Signal(object)
    undo_wanted = Signal(object)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._column = vbox(parent=self, spacing=8)
        self._cards: list[_CardBlock] = []
        self._legend = _Legend()
        self._vllm = Text("", "caption", tone="faint", wrap=True)
        self._fixes = vbox(spacing=4)
        self._offered: list[Button] = []
        self._undo_words = Text("", "caption", tone="muted")
        self._undo = Button("Undo", "quiet", icon="undo-2", height=24)
        self._undo_values: dict[str, Any] = {}
        self._undo.clicked.connect(self._undone)
        line = hbox((self._undo_words, 1), self._undo)
        add(self._column, self._legend, self._vllm, self._fixes, line)
        self.offer_undo("", {})

    def show_plan(self, plan: VramPlan) -> None:
        """Show every GPU of the run, and fixes if it does not fit."""
        while len(self._cards) > len(plan.cards):
            old = self._cards.pop()
            self._column.removeWidget(old)
            old.deleteLater()
        while len(self._cards) < len(plan.cards):
            block = _CardBlock()
            self._column.insertWidget(len(self._cards), block)
            self._cards.append(block)
        for block, card in zip(self._cards, plan.cards, strict=True):
            block.show_card(card, plan.overlaps, len(plan.cards) > 1)
        self._legend.show_cards(plan.cards)
        self._vllm.set_words(_sampler_words(plan))
        self._vllm.setVisible(bool(self._vllm.words()))
        self._show_fixes(plan.fixes)

    def offer_undo(self, words: str, values: dict[str, Any]) -> None:
        """Offer to undo a fix, described by `words`, with the old `values` (key → value; empty:
        hide)."""
        self._undo_values = values
        self._undo_words.set_words(f"Set: {words}" if words else "")
        for widget in (self._undo_words, self._undo):
            widget.setVisible(bool(values))

    def _undone(self) -> None:
        self.undo_wanted.emit(self._undo_values)
        self.offer_undo("", {})

    def _show_fixes(self, fixes: Sequence[MemoryFix]) -> None:
        while (item := self._fixes.takeAt(0)) is not None:
            if (old := item.widget()) is not None:
                old.hide()
                old.deleteLater()
        shown = fixes if len(fixes) <= MOST_FIXES else [*fixes[:4], fixes[-1]]
        self._offered = [self._button(fix) for fix in shown]
        add(self._fixes, *self._offered)

    def _button(self, fix: MemoryFix) -> Button:
        icon = "check" if fix.fits else "minus"
        button = Button(fix.words, "outlined", icon=icon, price=_saved(fix), height=28)
        set_tip(button, "\n".join(f"{key} = {value}" for key, value in fix.values.items()))
        button.setAccessibleName(f"{fix.words}, {_saved(fix)}, {_verdict(fix)}")
        button.clicked.connect(lambda: self.fix_chosen.emit(fix))
        return button


def _saved(fix: MemoryFix) -> str:
    return f"−{formatting.size(fix.saves_bytes)}" + (", fits" if fix.fits else "")


def _verdict(fix: MemoryFix) -> str:
    return "fits" if fix.fits else "still does not fit"


def _sampler_words(plan: VramPlan) -> str:
    """Describe vLLM's memory settings, and how many rollouts fit at once if not all do."""
    words = []
    if plan.memory_share is not None:
        gives = {
            "off": "keeps all its GPU memory",
            "cache": "frees its KV cache",
            "all": "frees all its GPU memory",
        }
        words.append(
            f"vLLM takes {formatting.percent(plan.memory_share)} of the GPU and "
            f"{gives[plan.sleep]} during the update."
        )
    if plan.rows < plan.rows_wanted:
        words.append(
            f"Enough memory for {plan.rows} of {plan.rows_wanted} concurrent rollouts; others wait."
        )
    return " ".join(words)


class _CardBlock(QWidget):
    """Block of one GPU: total, phases, and whether it fits."""

    def __init__(self) -> None:
        super().__init__()
        self._line = Phrase((), "label")
        self._rows = [
            StackRow(words, height=22, bar_px=14, words_px=WORDS_PX, figure_px=FIGURE_PX)
            for words, _ in PHASES
        ]
        vbox(self._line, *self._rows, parent=self, spacing=4)

    def show_card(self, card: CardPlan, overlaps: bool, several: bool) -> None:
        title = f"GPU {card.index} memory  " if several else "GPU memory  "
        room = f"{formatting.size(card.peak_bytes)} of {formatting.size(card.total_bytes)}"
        over = card.peak_bytes - card.room_bytes
        verdict = (
            Span("  fits", "good")
            if card.fits
            else Span(f"  {formatting.size(over)} too much", "bad")
        )
        self._line.set_spans([Span(title, "text", 600), Span(room), verdict])
        self._rows[1].setVisible(not overlaps)
        self._rows[0].set_words("Both" if overlaps else PHASES[0][0])
        for row, (_, phase) in zip(self._rows, PHASES, strict=True):
            self._fill(row, card, phase, overlaps)
        set_tip(self, card.name)

    def _fill(self, row: StackRow, card: CardPlan, phase: str, overlaps: bool) -> None:
        shares = grouped(card.parts, phase)
        if overlaps:
            both = [dict(grouped(card.parts, name)) for _, name in PHASES]
            shares = [(group, max(found[group] for found in both)) for group in both[0]]
        total = card.peak_bytes if overlaps else getattr(card, phase)
        whole = max(card.total_bytes, card.others_bytes + card.peak_bytes, 1)
        held = Stretch("other processes", card.others_bytes / whole, "faint", hatched=True)
        own = [Stretch(g.words, held_bytes / whole, g.token) for g, held_bytes in shares]
        tone = "text" if total <= card.room_bytes else "bad"
        row.set_stretches([held, *own], formatting.size(total), tone, card.total_bytes / whole)


class _Legend(Drawn):
    """Legend with names and sizes of segments, from the larger phase of the fullest GPU."""

    def __init__(self) -> None:
        super().__init__("Memory breakdown")
        self._shown: list[tuple[str, str, str]] = []

    def show_cards(self, cards: Sequence[CardPlan]) -> None:
        """Show the first GPU, which has the largest load."""
        sizes = [dict(grouped(cards[0].parts, name)) for _, name in PHASES]
        largest = [(group, max(found[group] for found in sizes)) for group in sizes[0]]
        self._shown = [(g.words, g.token, formatting.size(size)) for g, size in largest if size]
        if others := max(card.others_bytes for card in cards):
            self._shown.append(("other processes", "faint", formatting.size(others)))
        entries = ", ".join(f"{words} {size}" for words, _, size in self._shown)
        self.setAccessibleDescription(entries)
        self.updateGeometry()
        self.update()

    def sizeHint(self) -> QSize:
        lines = self._lines(max(200.0, float(self.width())))
        return QSize(200, 20 * (1 + max((line for line, _ in lines), default=0)))

    def resizeEvent(self, event: Any) -> None:
        super().resizeEvent(event)
        self.updateGeometry()

    def _lines(self, width: float) -> list[tuple[int, float]]:
        """Return line and x position of each entry."""
        places, line, x = [], 0, 0.0
        for words, _, size in self._shown:
            wide = 20 + paint.text_width(words, "caption") + paint.text_width(size, "caption")
            if x and x + wide > width:
                line, x = line + 1, 0.0
            places.append((line, x))
            x += wide + 14
        return places

    def paintEvent(self, event: QPaintEvent) -> None:
        with paint.painting(self) as painter:
            places = self._lines(float(self.width()))
            for (words, token, size), (line, x) in zip(self._shown, places, strict=True):
                y = line * 20.0
                square = QRectF(x, y + 4, 8, 8)
                if token == "faint":
                    paint.hatch(painter, square, token)
                else:
                    paint.box(painter, square, token, None, 2)
                room = QRectF(x + 14, y, self.width(), 16)
                after = paint.text(painter, room, words, "muted", "caption")
                at = QRectF(x + 20 + after, y, self.width(), 16)
                paint.text(painter, at, size, "faint", "caption")
