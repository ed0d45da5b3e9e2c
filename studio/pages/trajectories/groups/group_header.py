"""Header of a group: name, step, views, paging, prompt, figures and shared prefix."""

from collections.abc import Sequence

from PySide6.QtCore import QPointF, Qt, Signal
from PySide6.QtGui import QPaintEvent, QPen, QResizeEvent
from PySide6.QtWidgets import QWidget

from engine.protocol.records.runs import GroupSummary, Trajectory
from studio.pages.trajectories.reader.transcript_rows import (
    Weights,
    parts_of,
    question_of,
    shared_tokens,
    shared_words,
)
from studio.pages.trajectories.views import COLUMNS, COMPARE, SCENARIOS, TABLE
from studio.text import formatting
from studio.theme.theme import theme
from studio.widgets.controls.buttons import IconButton
from studio.widgets.controls.segmented import Segmented
from studio.widgets.layouts import STRETCH, hbox, vbox
from studio.widgets.painting import paint
from studio.widgets.tables.group_dots import GroupDots
from studio.widgets.text.chip import Chip
from studio.widgets.text.phrase import Phrase, Span
from studio.widgets.text.text import Text
from studio.widgets.transcript.items import plain

LISTS = (TABLE, SCENARIOS)
"""Views that list many groups."""
TITLE_PX, STEP_PX, LEGEND_PX, PLACE_PX = 420, 680, 860, 900


class GroupHead(QWidget):
    """Header of a group. Emits `mode_chosen(view)`, `paged(±1)`, `unfolded(bool)` for the shared
    prefix and `folding_chosen(bool)` for identical trajectories."""

    mode_chosen = Signal(int)
    paged = Signal(int)
    unfolded = Signal(bool)
    folding_chosen = Signal(bool)

    def __init__(self, modes: Sequence[str], parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.mode = Segmented(modes, "View")
        self._title = Text("", "title", elide=True)
        self._step, self._place = Chip(), Chip()
        self._blind = Chip("Blind", "human", icon="eye-off")
        self._blind.hide()
        self._words = Text("", "label", 400, "muted", elide=True)
        self._legend, self._figures = Phrase((), "caption"), Phrase((), "label")
        self._dots = GroupDots()
        self._shown = Text("", "label", 400, "muted")
        self._fold = Phrase((), "label")
        self._folds = True
        self._before = IconButton("chevron-left", "Previous trajectories")
        self._after = IconButton("chevron-right", "Next trajectories")
        self._start, self._mode = SharedStart(), 0
        self._identical = 0
        self._build()
        self.mode.chosen.connect(self.mode_chosen)
        self._before.clicked.connect(lambda: self.paged.emit(-1))
        self._after.clicked.connect(lambda: self.paged.emit(1))
        self._start.toggled.connect(self.unfolded)
        self._fold.link_activated.connect(lambda _: self._toggle_folding())

    def show_group(
        self,
        group: GroupSummary,
        records: Sequence[Trajectory],
        weights: Weights,
        blind: bool = False,
    ) -> None:
        """Show title, prompt and reward figures of a group; no figures if `blind`. `weights`:
        reward part → weight, for the legend."""
        self._title.set_words(group.title)
        self._title.setMaximumWidth(min(TITLE_PX, self._title.sizeHint().width()))
        tested = f"Validation after step {group.step}"
        self._step.set_state(f"Step {group.step}" if group.split == "train" else tested)
        self._place.set_state(f"Group {group.group + 1}")
        self._words.set_words(plain(question_of(records[0])) if records else "")
        self._legend.set_spans(legend(records, weights))
        spans = []
        for name, value in (("mean", group.mean), ("spread", group.std)):
            spans += [Span(f"{name} ")]
            spans += [Span(f"{formatting.number(value)}   ", "text", 600, mono=True)]
        self._figures.set_spans([] if blind else spans)
        self._blind.setVisible(blind)
        self._dots.setVisible(not blind)
        self._dots.set_rewards(group.rewards)
        self._start.show_start(records)
        self.set_view(self._mode)

    def clear(self) -> None:
        for text in (self._title, self._words):
            text.set_words("")
        for phrase in (self._legend, self._figures):
            phrase.set_spans([])
        for part in (self._step, self._place, self._blind):
            part.hide()
        self.show_identical(0)
        self._dots.set_rewards([])
        self._start.show_start([])

    def show_paging(self, words: str) -> None:
        """Show the text that tells which columns of the group are visible."""
        self._shown.set_words(words)

    def show_identical(self, count: int) -> None:
        """Show how many trajectories of the group are identical to another one, with a link that
        folds or unfolds them; nothing without any."""
        self._identical = count
        self._show_folding()

    def _show_folding(self) -> None:
        words = f"Show {self._identical} identical" if self._folds else "Fold identical"
        self._fold.set_spans([Span(words, "accent", 500, link="fold")])
        self._fold.setVisible(bool(self._identical) and self._mode == COLUMNS)

    def _toggle_folding(self) -> None:
        self._folds = not self._folds
        self._show_folding()
        self.folding_chosen.emit(self._folds)

    def set_view(self, mode: int) -> None:
        """Show the controls of a view: an index from `views` (COLUMNS, READER, TABLE …)."""
        self.mode.set_index(mode)
        for part in (self._title, self._step, self._before, self._shown, self._after):
            part.setVisible(mode not in LISTS)
        self._mode = mode
        self._show_place()
        self._show_folding()
        self._line.setVisible(mode in (COLUMNS, COMPARE))
        self._start.setVisible(mode == COLUMNS)

    def _show_place(self) -> None:
        """Show step, group number and trajectory range if there is room."""
        self._step.setVisible(self._mode not in LISTS and self.width() >= STEP_PX)
        for part in (self._place, self._shown):
            part.setVisible(self._mode not in LISTS and self.width() >= PLACE_PX)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._legend.setVisible(self.width() > LEGEND_PX)
        self._show_place()

    def add_notice(self, notice: QWidget) -> None:
        """Insert the widget `notice` below the line of view buttons, which does not move."""
        self._column.insertWidget(1, notice)

    def _build(self) -> None:
        top = hbox(
            (self._title, 100),
            self._step,
            self._place,
            self._blind,
            STRETCH,
            self._fold,
            self._before,
            self._shown,
            self._after,
            self.mode,
            spacing=8,
        )
        self._line = QWidget()
        line = hbox((self._words, 1), self._legend, self._figures, parent=self._line, spacing=16)
        self._dots.setFixedWidth(150)
        line.addWidget(self._dots)
        self._column = vbox(top, self._line, self._start, parent=self, spacing=8)


def legend(records: Sequence[Trajectory], weights: Weights) -> list[Span]:
    """Return the legend of the reward parts: a coloured square and a name for each. `weights`:
    reward part → weight."""
    parts = {part.name: part.token for one in records for part in parts_of(one, weights)}
    spans = []
    for name, token in parts.items():
        spans += [Span("■ ", token), Span(f"{plain(name)}   ", "muted")]
    return spans


class SharedStart(QWidget):
    """Collapsible row with the shared prefix of all trajectories."""

    toggled = Signal(bool)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._open = False
        self.setFixedHeight(32)
        self._words = Text("", "label", 400, "muted", elide=True)
        self._link = Phrase((), "label")
        hbox(
            Text("Shared prefix", "label", 600),
            (self._words, 1),
            self._link,
            parent=self,
            margins=(34, 0, 12, 0),
            spacing=12,
        )
        self._tokens = ""
        self._link.link_activated.connect(lambda _: self._toggle())

    def show_start(self, records: Sequence[Trajectory]) -> None:
        """Show the messages and length of the prefix shared by the trajectories of a group."""
        self._words.set_words(shared_words(records[0]) if records else "")
        count = shared_tokens(records)
        once = f", computed once for {len(records)} rollouts" if len(records) > 1 else ""
        self._tokens = f"{formatting.count(count)} tokens{once}   " if count else ""
        self._show_link()

    def _toggle(self) -> None:
        self._open = not self._open
        self._show_link()
        self.toggled.emit(self._open)

    def _show_link(self) -> None:
        words = "Collapse" if self._open else "Expand"
        self._link.set_spans([Span(self._tokens), Span(words, "accent", 500, link="fold")])

    def paintEvent(self, event: QPaintEvent) -> None:
        with paint.painting(self) as painter:
            painter.setPen(QPen(theme().color("border-strong"), 1, Qt.PenStyle.DashLine))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            shape = self.rect().toRectF().adjusted(0.5, 0.5, -0.5, -0.5)
            painter.drawRoundedRect(shape, 6, 6)
            name = "unfold-vertical" if self._open else "fold-vertical"
            paint.icon(painter, QPointF(12, 9), name, "muted", 14)
