"""Columns view: the trajectories of a group side by side, with paging, focus and ranking."""

from collections.abc import Callable
from dataclasses import dataclass, field

from PySide6.QtCore import QPoint, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QMouseEvent, QPaintEvent, QResizeEvent, QWheelEvent
from PySide6.QtWidgets import QWidget

from engine.protocol.records.judging import chief_verdict
from engine.protocol.records.runs import GroupSummary, Trajectory
from engine.protocol.requests.runs import Siblings
from studio.pages.trajectories.groups.column_header import ColumnHead, HeadFacts
from studio.pages.trajectories.groups.folding import Fold, copies_of, folds_of
from studio.pages.trajectories.labels.draft import Draft, may_be_ranked
from studio.pages.trajectories.labels.wording import chips_of, excluded
from studio.pages.trajectories.reader.transcript_rows import (
    EVEN,
    Weights,
    divergence_texts,
    divergences,
    items_of,
    largest_advantage,
    parts_of,
    ranks,
    turn_rows,
)
from studio.theme.theme import theme
from studio.widgets.layouts import hbox, vbox
from studio.widgets.painting import paint
from studio.widgets.tables.reward_bar import full_reward
from studio.widgets.transcript.hits import Patterns
from studio.widgets.transcript.items import Item
from studio.widgets.transcript.pictures import Pictures
from studio.widgets.transcript.view import Transcript

NARROWEST, WIDEST, GAP = 232, 320, 8


class SiblingColumn(QWidget):
    """Column of one trajectory; the focused one has an accent edge."""

    focused = Signal()
    opened = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._chosen = False
        self.head, self.transcript = ColumnHead(), Transcript(compact=True)
        self.transcript.setMinimumHeight(LEAST_TRANSCRIPT_PX)
        vbox(self.head, (self.transcript, 1), parent=self, margins=(1, 1, 1, 2), spacing=0)
        self.head.pressed.connect(self.focused)
        self.transcript.row_focused.connect(lambda _: self.focused.emit())

    def set_chosen(self, chosen: bool) -> None:
        self._chosen = chosen
        self.head.set_focused(chosen)
        self.update()

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        self.opened.emit()

    def paintEvent(self, event: QPaintEvent) -> None:
        with paint.painting(self) as painter:
            paint.box(painter, self.rect(), "surface", "accent" if self._chosen else "border", 8)


LEAST_TRANSCRIPT_PX = 36
"""Height of the transcript in a low window with a message below."""


@dataclass
class _Shown:
    """Group in display order, with divergence texts and transcript rows by trajectory number."""

    group: GroupSummary
    folds: list[Fold]
    """One per column."""
    divergence: dict[int, str]
    verdicts: Siblings
    items: dict[int, list[Item]] = field(default_factory=dict)

    @property
    def records(self) -> list[Trajectory]:
        """Return the trajectory of each column; the first of identical ones."""
        return [fold.first for fold in self.folds]


class ColumnsView(QWidget):
    """Columns of a group, with paging if they do not all fit; identical trajectories share one.
    Emits `ranked(ids)`, best first, when headers are dragged or moved by keys."""

    focus_changed = Signal(int)
    opened = Signal(int)
    paged = Signal()
    ranked = Signal(list)
    folds_changed = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._shown_group: _Shown | None = None
        self._columns: list[SiblingColumn] = []
        self._first = self._focus = 0
        self._tint = "advantage"
        self._pictures: Pictures | None = None
        self._patterns: Patterns = {}
        self._weights, self._draft = EVEN, Draft()
        self._unfolded = self._blind = False
        self._folding = True
        self._drop = -1
        self._line = hbox(parent=self, spacing=GAP)

    @property
    def focused(self) -> int:
        """Return the position of the focused column (from 0)."""
        return self._focus

    @property
    def _siblings(self) -> list[Trajectory]:
        return self._shown_group.records if self._shown_group else []

    def set_pictures(self, pictures: Pictures) -> None:
        """Show images as thumbnails in all columns that are made from now on."""
        self._pictures = pictures

    def record(self) -> Trajectory | None:
        """Return the focused trajectory; None without a group."""
        return self._siblings[self._focus] if self._siblings else None

    def order(self) -> list[Trajectory]:
        """Return the trajectory of each column, left to right."""
        return list(self._siblings)

    def shown_words(self) -> str:
        """Return which trajectories are in view: "3, 1 of 4"; empty without a group."""
        seen = self._siblings[self._first : self._first + len(self._columns)]
        return self._place_words(", ".join(str(record.index + 1) for record in seen))

    def focus_words(self) -> str:
        """Return which trajectory is focused: "3 of 4"; empty without a group."""
        record = self.record()
        return self._place_words(str(record.index + 1) if record else "")

    def _place_words(self, numbers: str) -> str:
        total = len(self._shown_group.verdicts.trajectories) if self._shown_group else 0
        return f"{numbers} of {total}" if total else ""

    def copies(self) -> dict[str, tuple[str, ...]]:
        """Map, for each column that stands for several identical trajectories, the id of the first
        one to the ids of all; other columns are absent."""
        return copies_of(self._shown_group.folds) if self._shown_group else {}

    def identical(self) -> int:
        """Return how many trajectories of the group are identical to an earlier one."""
        if self._shown_group is None:
            return 0
        records = self._shown_group.verdicts.trajectories
        return len(records) - len(folds_of(records))

    def set_folding(self, folding: bool) -> None:
        """Show identical trajectories in one column, or each in its own."""
        if folding != self._folding:
            self._folding = folding
            if (shown := self._shown_group) is not None:
                self._shown_group = None  # the order is that of a new group
                self.show_group(shown.verdicts, self._weights, self._blind)

    def show_group(self, siblings: Siblings, weights: Weights = EVEN, blind: bool = False) -> None:
        """Show a group, highest reward first (`folds_of`), or in stored order if `blind` or without
        rewards. `weights`: reward part → weight.

        An update of the group on display keeps its order and focus."""
        before, self._weights, self._blind = self._shown_group, weights, blind
        folds = folds_of(siblings.trajectories, self._folding)
        records = [fold.first for fold in folds]
        texts = divergence_texts(records)
        divergence = {record.index: texts[place] for place, record in enumerate(records)}
        by_index = {fold.first.index: fold for fold in folds}
        same = before is not None and _place(before.group) == _place(siblings.group)
        known = [record.index for record in before.records] if same and before else []
        if sorted(known) == sorted(by_index):
            folds = [by_index[index] for index in known]
        else:
            self._first = self._focus = 0
        self._shown_group = _Shown(siblings.group, folds, divergence, siblings)
        self.folds_changed.emit()
        self._fill()

    def clear(self) -> None:
        self._shown_group, self._draft = None, Draft()
        self._first = self._focus = 0
        self._fill()

    def show_draft(self, draft: Draft) -> None:
        """Show the uncommitted label `draft` as chips in the column headers."""
        self._draft = draft
        self._show_heads()

    def set_hits(self, patterns: Patterns) -> None:
        """Highlight the text matches of the filter in all columns. `patterns`: kind of text
        (prompt, answer, call) → pattern, None: not searched."""
        self._patterns = patterns
        for column in self._columns:
            column.transcript.set_hits(patterns)

    def set_tint(self, tint: str) -> None:
        """Set the token colours: advantage, logprob, entropy, mask or none."""
        self._tint = tint
        for column in self._columns:
            column.transcript.set_tint(tint)

    def set_unfolded(self, unfolded: bool) -> None:
        """Show or hide the messages before the first turn, which all trajectories share."""
        self._unfolded = unfolded
        if self._shown_group:
            self._shown_group.items.clear()
        self._fill()

    def move_focus(self, by: int) -> None:
        """Focus the column `by` positions to the right (negative: left)."""
        self.focus(self._focus + by)

    def focus(self, place: int) -> None:
        """Focus the column at a position (from 0) and page to it."""
        if not self._siblings:
            return
        self._focus = min(len(self._siblings) - 1, max(0, place))
        shown = self._shown()
        if self._focus < self._first:
            self._first = self._focus
            self._fill()
        elif self._focus >= self._first + shown:
            self._first = self._focus - shown + 1
            self._fill()
        self._mark()
        self.focus_changed.emit(self._siblings[self._focus].index)

    def page(self, by: int) -> None:
        """Scroll by `by` screens of columns to the right (negative: left)."""
        shown = self._shown()
        last = max(0, len(self._siblings) - shown)
        self._first = min(last, max(0, self._first + by * shown))
        self._focus = min(max(self._focus, self._first), self._first + shown - 1)
        self._fill()

    def focus_index(self, index: int) -> None:
        """Focus a trajectory by its number in the group (from 0), or the identical one that is
        shown for it."""
        folds = self._shown_group.folds if self._shown_group else []
        places = [i for i, fold in enumerate(folds) if index in {r.index for r in fold.records}]
        self.focus(places[0] if places else 0)

    def move_rank(self, by: int) -> None:
        """Move the focused trajectory `by` columns to the right (negative: left), as a rank by a
        person; no effect beyond either end."""
        self._rank(self._focus, self._focus + by)

    def toggle_reasoning(self) -> None:
        """Show or fold the reasoning in all columns."""
        for column in self._columns:
            column.transcript.toggle_reasoning()

    def next_divergence(self) -> int | None:
        """Scroll to the focused trajectory's next divergence from others, from the last one to the
        first; return its turn (from 1), or None if there is no divergence."""
        place = self._focus - self._first
        if not 0 <= place < len(self._columns):
            return None
        turns = self.divergences()
        transcript = self._columns[place].transcript
        rows = turn_rows(self._items(self._focus))
        places = [(rows[turn - 1], turn) for turn in turns if turn <= len(rows)]
        if not places:
            return None
        after = [pair for pair in places if pair[0] > transcript.focused_row()]
        row, turn = (after or places)[0]
        transcript.focus_row(row)
        return turn

    def divergences(self) -> list[int]:
        """Return the turns (from 1) at which the focused trajectory diverges from others."""
        return divergences(self._siblings, self._focus) if self._siblings else []

    def sizeHint(self) -> QSize:
        return QSize(2 * NARROWEST + GAP, 400)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if len(self._columns) != min(self._shown(), len(self._siblings)):
            self._fill()

    def wheelEvent(self, event: QWheelEvent) -> None:
        if event.modifiers() & Qt.KeyboardModifier.ShiftModifier:
            self.page(-1 if event.angleDelta().y() > 0 else 1)
        else:
            super().wheelEvent(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        if self._drop < 0 or not self._columns:
            return
        place = min(self._drop, len(self._columns) - 1)
        edge = self._columns[place].geometry()
        x = edge.left() - GAP / 2 if self._drop == place else edge.right() + GAP / 2
        with paint.painting(self) as painter:
            painter.fillRect(QRectF(x - 1, 0, 3, self.height()), theme().color("human"))

    def _shown(self) -> int:
        return max(2, (self.width() + GAP) // (NARROWEST + GAP))

    def _items(self, place: int) -> list[Item]:
        shown = self._shown_group
        assert shown is not None
        record = shown.records[place]
        if record.index not in shown.items:
            folded = not self._unfolded
            shown.items[record.index] = items_of(record, folded, self._weights, self._blind)
        return shown.items[record.index]

    def _fill(self) -> None:
        count = min(self._shown(), len(self._siblings))
        self._first = min(self._first, max(0, len(self._siblings) - count))
        self._make(count)
        largest = largest_advantage(self._shown_group.group) if self._shown_group else 0.0
        for place, column in enumerate(self._columns, self._first):
            column.transcript.set_tint(self._tint)
            column.transcript.set_hits(self._patterns)
            column.transcript.set_items(self._items(place), largest=largest)
        self._show_heads()
        self._mark()
        self.paged.emit()

    def _show_heads(self) -> None:
        shown = self._shown_group
        if shown is None:
            return
        for place, column in enumerate(self._columns, self._first):
            facts = self._facts(shown, shown.folds[place])
            column.head.show_facts(facts)
            column.transcript.set_faint(facts.excluded)

    def facts_of(self, name: str) -> HeadFacts | None:
        """Return the header content of the trajectory with id `name`; None if not in the group."""
        shown = self._shown_group
        folds = shown.folds if shown else []
        found = [fold for fold in folds if name in {one.id for one in fold.records}]
        return self._facts(shown, found[0]) if shown and found else None

    def _facts(self, shown: _Shown, fold: Fold) -> HeadFacts:
        verdicts, record = shown.verdicts, fold.first
        parts = [parts_of(one, self._weights) for one in verdicts.trajectories]
        chips = chips_of(record, verdicts.labels, self._draft)
        return HeadFacts(
            record=record,
            fold=fold,
            full_reward=max(map(full_reward, parts), default=1.0),
            rank=ranks(shown.group).get(record.index, 0),
            of=len(verdicts.trajectories),
            divergence=shown.divergence[record.index],
            verdict=chief_verdict(record, verdicts.verdicts),
            chips=tuple(chips),
            excluded=excluded(chips),
            weights=self._weights,
            judged=any(verdict.reason or verdict.problem for verdict in verdicts.verdicts),
            spoken=any(one.unlabelled for one in verdicts.trajectories),
            blind=self._blind,
        )

    def _make(self, count: int) -> None:
        while len(self._columns) < count:
            column, place = SiblingColumn(), len(self._columns)
            if self._pictures is not None:
                column.transcript.set_pictures(self._pictures)
            column.setMaximumWidth(WIDEST * 2)
            column.focused.connect(lambda place=place: self.focus(self._first + place))
            column.opened.connect(lambda place=place: self._open(place))
            column.head.dragged.connect(self._drag)
            column.head.dropped.connect(self._dropped(place))
            self._columns.append(column)
            self._line.addWidget(column, 1)
        while len(self._columns) > count:
            column = self._columns.pop()
            self._line.removeWidget(column)
            column.deleteLater()

    # Drag and drop ranking

    def _slot(self, x: int) -> int:
        """Return the visible column (from 0) before which a screen position in pixels lies."""
        inside = self.mapFromGlobal(QPoint(x, 0)).x()
        return sum(inside > column.geometry().center().x() for column in self._columns)

    def _drag(self, x: int) -> None:
        self._drop = self._slot(x)
        self.update()

    def _dropped(self, place: int) -> Callable[[int], None]:
        def drop(x: int) -> None:
            slot, self._drop = self._slot(x), -1
            self.update()
            target = slot - 1 if slot > place else slot
            self._rank(self._first + place, self._first + target)

        return drop

    def _rank(self, place: int, target: int) -> None:
        shown = self._shown_group
        if shown is None or not 0 <= target < len(shown.records) or target == place:
            return
        shown.folds.insert(target, shown.folds.pop(place))
        self._focus = target
        self._fill()
        self.focus(target)
        self.ranked.emit([record.id for record in shown.records if may_be_ranked(record)])

    def _open(self, place: int) -> None:
        self.focus(self._first + place)
        self.opened.emit(self._siblings[self._focus].index)

    def _mark(self) -> None:
        for place, column in enumerate(self._columns):
            column.set_chosen(self._first + place == self._focus)


def _place(group: GroupSummary) -> tuple[str, int, int]:
    return group.split, group.step, group.group
