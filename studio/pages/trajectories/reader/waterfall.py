"""Waterfall of a trajectory: a bar over its time for each model call and its tools, with latency
and tokens."""

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
from studio.pages.trajectories.reader.spans import OF_TOOLS, Span, spans_of, summary_words, total_s
from studio.pages.trajectories.reader.transcript_rows import items_of
from studio.text import formatting
from studio.widgets.layouts import vbox
from studio.widgets.painting import paint
from studio.widgets.text.text import Text
from studio.widgets.transcript.items import plain

ROW_PX, BAR_PX, LEAST_PX = 44, 8, 2.0


class SpanModel(RowsModel[Span]):
    """List model of spans; `UserRole` returns the Span."""

    columns = ("Span",)
    total_s = 0.0
    """Length of the time axis in seconds."""

    def cell(self, row: Span, column: int, role: int) -> Any:
        shown = role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.AccessibleTextRole)
        return f"{plain(row.words[:200])} {facts_of(row)}" if shown else None


def facts_of(span: Span) -> str:
    """Describe tokens and latency of a span: "840 → 56 tok · 1.2 s"."""
    return " · ".join(filter(None, (span.tokens, formatting.duration(span.seconds))))


class _SpanDelegate(QStyledItemDelegate):
    def __init__(self, model: SpanModel, view: QListView) -> None:
        super().__init__(view)
        self._model = model

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        return QSize(120, ROW_PX)

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        span = index.data(Qt.ItemDataRole.UserRole)
        rect = QRectF(option.rect)  # type: ignore[attr-defined]
        state = option.state  # type: ignore[attr-defined]
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        if state & QStyle.StateFlag.State_Selected:
            paint.box(painter, rect.adjusted(0, 1, 0, -1), "selection", None, 4)
        elif state & QStyle.StateFlag.State_MouseOver:
            paint.box(painter, rect.adjusted(0, 1, 0, -1), "hover", None, 4)
        inner = rect.adjusted(8, 4, -8, -4)
        tools = span.kind == OF_TOOLS
        icon = "circle-alert" if span.failed else "wrench" if tools else "bot"
        tone = "bad" if span.failed else "muted"
        paint.icon(painter, QPointF(inner.left(), inner.top() + 2), icon, tone, 14)
        line = QRectF(inner.left() + 22, inner.top(), inner.width() - 22, 18)
        used = paint.text(painter, line, facts_of(span), "muted", "caption", align=paint.RIGHT)
        room = line.adjusted(0, 0, -used - 8, 0)
        style, weight = ("mono-small", 400) if tools else ("label", 500)
        paint.text(painter, room, plain(span.words[:200]), "text", style, weight)
        self._paint_bar(painter, inner, span)
        painter.restore()

    def _paint_bar(self, painter: QPainter, inner: QRectF, span: Span) -> None:
        track = QRectF(inner.left(), inner.bottom() - BAR_PX - 1, inner.width(), BAR_PX)
        paint.box(painter, track, "chip", None, 2)
        total = self._model.total_s
        if span.start_s is None or span.end_s is None or total <= 0:
            return
        left = track.left() + track.width() * span.start_s / total
        width = max(LEAST_PX, track.width() * (span.end_s - span.start_s) / total)
        bar = QRectF(min(left, track.right() - LEAST_PX), track.top(), width, BAR_PX)
        tone = "bad" if span.failed else "plot-3" if span.kind == OF_TOOLS else "plot-1"
        paint.box(painter, bar.intersected(track), tone, None, 2)


class Waterfall(QWidget):
    """Waterfall. Emits `row_wanted(row)` to scroll to a transcript row."""

    row_wanted = Signal(int)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._words = Text("", "label", 400, "muted", wrap=True)
        self.model, self.list = SpanModel(self), QListView()
        self.list.setModel(self.model)
        self.list.setItemDelegate(_SpanDelegate(self.model, self.list))
        self.list.setUniformItemSizes(True)
        self.list.setMouseTracking(True)
        self.list.setFrameShape(QFrame.Shape.NoFrame)
        self.list.setAccessibleName("Calls over time")
        self.list.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        vbox(self._words, (self.list, 1), parent=self, margins=(2, 4, 0, 8), spacing=8)
        self.list.clicked.connect(self._want)
        self.list.activated.connect(self._want)

    def show_record(self, record: Trajectory) -> None:
        """Show the calls of a trajectory."""
        spans = spans_of(record, items_of(record))
        self.model.total_s = total_s(record, spans)
        self.model.set_rows(spans)
        self._words.set_words(summary_words(record, spans))

    def words(self) -> list[str]:
        """Return the summary and the text of each row; used by tests."""
        rows = [self.model.index(row, 0).data() for row in range(self.model.rowCount())]
        return [self._words.words(), *rows]

    def _want(self, index: Index) -> None:
        row = self.model.rows[index.row()].row
        if row >= 0:
            self.row_wanted.emit(row)
