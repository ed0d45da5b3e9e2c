"""Outline of a trajectory: turns with indented calls and errors; trained tokens below."""

from collections.abc import Sequence
from typing import Any

from PySide6.QtCore import QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QPainter
from PySide6.QtWidgets import (
    QFrame,
    QListView,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QWidget,
)

from engine.protocol.records.runs import Trajectory
from studio.models.paged import Index
from studio.models.rows import RowsModel
from studio.pages.trajectories.reader.transcript_rows import Heading
from studio.text import formatting
from studio.widgets.cards.key_values import KeyValues
from studio.widgets.layouts import STRETCH, hbox, vbox
from studio.widgets.painting import paint
from studio.widgets.painting.advantage_mark import AdvantageMark
from studio.widgets.tables.meter import MeterRow
from studio.widgets.text.text import Text
from studio.widgets.transcript.items import plain

OUTLINE_PX, ROW_PX = 216, 28


class HeadingModel(RowsModel[Heading]):
    """List model of headings; `UserRole` returns the Heading."""

    columns = ("Heading",)

    def cell(self, heading: Heading, column: int, role: int) -> Any:
        shown = role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.AccessibleTextRole)
        return f"{plain(heading.words[:200])} {heading.fact}".strip() if shown else None


class _HeadingDelegate(QStyledItemDelegate):
    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        return QSize(OUTLINE_PX, ROW_PX)

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        heading = index.data(Qt.ItemDataRole.UserRole)
        rect = QRectF(option.rect)  # type: ignore[attr-defined]
        state = option.state  # type: ignore[attr-defined]
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        if state & QStyle.StateFlag.State_Selected:
            paint.box(painter, rect.adjusted(0, 1, -4, -1), "selection", None, 4)
        elif state & QStyle.StateFlag.State_MouseOver:
            paint.box(painter, rect.adjusted(0, 1, -4, -1), "hover", None, 4)
        failed = heading.fact == "error"
        left = rect.left() + (26 if heading.deep else 8)
        icon = "circle-alert" if failed else heading.icon
        paint.icon(painter, QPointF(left, rect.top() + 7), icon, "bad" if failed else "muted", 14)
        fact = rect.adjusted(0, 0, -12, 0)
        used = paint.text(
            painter, fact, heading.fact, "bad" if failed else "faint", "caption", align=paint.RIGHT
        )
        room = QRectF(left + 22, rect.top(), fact.right() - used - left - 30, rect.height())
        style, weight = ("mono-small", 400) if heading.deep else ("label", 500)
        paint.text(painter, room, plain(heading.words[:200]), "text", style, weight)
        painter.restore()


class Outline(QWidget):
    """Outline of a trajectory. Emits `row_wanted(row)` to scroll to a transcript row."""

    row_wanted = Signal(int)

    def __init__(self) -> None:
        super().__init__()
        self.setFixedWidth(OUTLINE_PX)
        self._number = Text("", "title")
        self._advantage = AdvantageMark()
        self._model, self._list = HeadingModel(self), QListView()
        self._trained = MeterRow("Trained", "plot-1", words_px=52, figure_px=84)
        self._facts = KeyValues(1)
        self._list.setModel(self._model)
        self._list.setItemDelegate(_HeadingDelegate(self._list))
        self._list.setUniformItemSizes(True)
        self._list.setMouseTracking(True)
        self._list.setFrameShape(QFrame.Shape.NoFrame)
        self._list.setAccessibleName("Outline")
        self._list.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        head = hbox(self._number, self._advantage, STRETCH, margins=(4, 8, 0, 8))
        vbox(head, (self._list, 1), self._trained, self._facts, parent=self)
        self._list.clicked.connect(self._want)
        self._list.activated.connect(self._want)

    def show_outline(self, record: Trajectory, headings: Sequence[Heading]) -> None:
        self._number.set_words(f"{record.index + 1} · {formatting.number(record.reward)}")
        self._advantage.set_advantage(record.advantage)
        self._model.set_rows(headings)
        total = sum(len(branch.tokens) for branch in record.branches)
        trained = sum(branch.sampled for branch in record.trained_branches)
        share = trained / total if total else None
        conversations = len(record.conversations)
        self._trained.set_value(share, f"{trained:,} of {total:,}" if total else formatting.ABSENT)
        self._facts.set_values(
            [
                *([("Conversations", str(conversations))] if conversations > 1 else []),
                ("Branches", str(len(record.branches))),
                ("Policy", f"after step {record.policy_version}"),
                ("Seed", str(record.seed)),
            ]
        )

    def show_row(self, row: int) -> None:
        """Select the heading that contains a transcript row."""
        rows = [heading.row for heading in self._model.rows]
        place = next((i for i, known in reversed(list(enumerate(rows))) if known <= row), -1)
        if place >= 0:
            self._list.setCurrentIndex(self._model.index(place, 0))

    def _want(self, index: Index) -> None:
        self.row_wanted.emit(self._model.rows[index.row()].row)
