"""Base of every table: QTableView with 36 px rows, and a delegate that draws by kind of column.
Models provide plain values and the roles of `studio.theme.item_roles`."""

from typing import Any

from PySide6.QtCore import (
    QAbstractItemModel,
    QModelIndex,
    QPersistentModelIndex,
    QRectF,
    QSize,
    Qt,
    Signal,
)
from PySide6.QtGui import QColor, QKeyEvent, QMouseEvent, QPainter
from PySide6.QtWidgets import (
    QAbstractItemView,
    QFrame,
    QHeaderView,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QTableView,
    QWidget,
)

from studio.theme.item_roles import (
    BELOW_ROLE,
    CHIPS_ROLE,
    HITS_ROLE,
    ICON_ROLE,
    TONE_ROLE,
    VALUE_ROLE,
)
from studio.theme.theme import theme
from studio.widgets.charts.sparkline import paint_sparkline
from studio.widgets.painting import paint
from studio.widgets.painting.advantage_mark import paint_advantage
from studio.widgets.tables.group_dots import paint_group_dots
from studio.widgets.tables.interval_axis import paint_interval
from studio.widgets.tables.meter import paint_meter
from studio.widgets.tables.reward_bar import paint_parts

Index = QModelIndex | QPersistentModelIndex
_PAD = 12


class Table(QTableView):
    """Table with rows of 36 px (`row_px`), hairlines, hover, selection, and sorting by the header.
    Signals: `row_opened(row)` on double click and Enter, `row_marked(row)` on Space."""

    row_opened = Signal(int)
    row_marked = Signal(int)

    def __init__(self, name: str, *, row_px: int = 36, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.hovered_row = -1
        self.setAccessibleName(name)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setShowGrid(False)
        self.setMouseTracking(True)
        self.setWordWrap(False)
        self.setCornerButtonEnabled(False)
        self.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.setHorizontalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.setTabKeyNavigation(False)
        self.verticalHeader().hide()
        self.verticalHeader().setSectionResizeMode(QHeaderView.ResizeMode.Fixed)
        self.verticalHeader().setDefaultSectionSize(row_px)
        head = self.horizontalHeader()
        head.setFixedHeight(28)
        head.setFont(theme().font("caption"))
        head.setHighlightSections(False)
        head.setMinimumSectionSize(28)
        head.setDefaultAlignment(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter)
        self.cells = CellDelegate(self)
        self.setItemDelegate(self.cells)
        self.doubleClicked.connect(lambda index: self.row_opened.emit(index.row()))

    def set_column(self, column: int, width: int | None, kind: str = "text") -> None:
        """Set width in pixels (None stretches) and kind of a column. Kinds: text, strong, figure,
        mono, check, advantage, dots, sparkline, parts, meter, interval."""
        mode = QHeaderView.ResizeMode
        head = self.horizontalHeader()
        head.setSectionResizeMode(column, mode.Stretch if width is None else mode.Interactive)
        if width is not None:
            self.setColumnWidth(column, width)
        self.cells.kinds[column] = kind

    def setModel(self, model: QAbstractItemModel | None) -> None:
        """Set the model, which must do sorting and filtering itself."""
        super().setModel(model)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        row = self.rowAt(event.position().toPoint().y())
        if row != self.hovered_row:
            self.hovered_row = row
            self.viewport().update()
        super().mouseMoveEvent(event)

    def leaveEvent(self, event: Any) -> None:
        self.hovered_row = -1
        self.viewport().update()
        super().leaveEvent(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        row = self.currentIndex().row()
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and row >= 0:
            self.row_opened.emit(row)
        elif event.key() == Qt.Key.Key_Space and row >= 0:
            self.row_marked.emit(row)
        else:
            super().keyPressEvent(event)


class CellDelegate(QStyledItemDelegate):
    """Delegate that draws a cell by the kind of its column; subclasses override `paint_cell`."""

    def __init__(self, table: QTableView) -> None:
        super().__init__(table)
        self._table = table
        self.kinds: dict[int, str] = {}

    def paint_cell(self, painter: QPainter, rect: QRectF, kind: str, index: Index) -> None:
        """Draw the content of one cell inside its padding, by the `kind` of its column."""
        value = index.data(VALUE_ROLE)
        middle = rect.center().y()
        match kind:
            case "dots":
                paint_group_dots(painter, rect, value or [])
            case "sparkline" if value:
                points, token = value
                paint_sparkline(painter, rect.adjusted(0, 6, 0, -6), points, token)
            case "parts" if value:
                paint_parts(painter, QRectF(rect.left(), middle - 3, rect.width(), 6), value)
            case "meter" if value is not None:
                paint_meter(
                    painter, QRectF(rect.left(), middle - 3, rect.width(), 6), value, "plot-1"
                )
            case "interval" if value is not None:
                item, low, high, *base = value
                paint_interval(painter, rect, item, low, high, *base)
            case "advantage":
                paint_advantage(painter, rect, value)
            case "check":
                paint_check(painter, rect, index.data(Qt.ItemDataRole.CheckStateRole))
            case _:
                self._paint_words(painter, rect, kind, index)

    def _paint_words(self, painter: QPainter, rect: QRectF, kind: str, index: Index) -> None:
        words = str(index.data(Qt.ItemDataRole.DisplayRole) or "")
        default = "text" if kind in ("strong", "text", "mono") else "muted"
        tone = index.data(TONE_ROLE) or default
        if icon := index.data(ICON_ROLE):
            at = paint.QPointF(rect.left(), rect.center().y() - 7)
            paint.icon(painter, at, icon, tone, 14)
            rect = rect.adjusted(22, 0, 0, 0)
        if below := index.data(BELOW_ROLE):
            lower = QRectF(rect.left(), rect.center().y() + 1, rect.width(), 16)
            paint.text(painter, lower, str(below), "muted", "label", 400)
            rect = QRectF(rect.left(), rect.center().y() - 18, rect.width(), 18)
        style = {"strong": "body", "mono": "mono", "figure": "label"}.get(kind, "label")
        weight = {"strong": 500}.get(kind, 400)
        align = paint.RIGHT if kind in ("figure", "mono") else paint.LEFT
        if (hits := index.data(HITS_ROLE)) and align == paint.LEFT:
            _paint_hits(painter, rect, words, hits, style, weight)
        paint.text(painter, rect, words, tone, style, weight, align)
        if chips := index.data(CHIPS_ROLE):
            x = rect.left() + paint.text_width(words, style, weight) + 8
            self._paint_chips(painter, rect, x, chips)

    def _paint_chips(
        self, painter: QPainter, rect: QRectF, x: float, chips: list[tuple[str, str]]
    ) -> None:
        """Draw as many chips (text, tone) as fit."""
        for words, tone in chips:
            width = round(paint.text_width(words, "caption", 500)) + 12
            if x + width > rect.right():
                return
            cell = QRectF(x, rect.center().y() - 9, width, 18)
            fill = {"accent": "accent-soft", "warn": "warn-soft"}.get(tone, "chip")
            paint.box(painter, cell, fill, fill, 4)
            paint.text(painter, cell, words, tone, "caption", 500, paint.CENTER)
            x += width + 4

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        rect = QRectF(option.rect)  # type: ignore[attr-defined]
        state = option.state  # type: ignore[attr-defined]
        color = theme().color
        if state & QStyle.StateFlag.State_Selected:
            painter.fillRect(rect, color("selection"))
        elif getattr(self._table, "hovered_row", -1) == index.row():
            painter.fillRect(rect, color("hover"))
        painter.fillRect(QRectF(rect.left(), rect.bottom() - 1, rect.width(), 1), color("border"))
        kind = self.kinds.get(index.column(), "text")
        painter.setClipRect(rect)
        self.paint_cell(painter, rect.adjusted(_PAD, 0, -_PAD, -1), kind, index)
        painter.setClipping(False)
        current = index.row() == self._table.currentIndex().row()
        if current and self._table.hasFocus() and state & QStyle.StateFlag.State_HasFocus:
            paint.focus_ring(painter, rect.adjusted(0, 0, 0, -1), 4)
        painter.restore()

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        return QSize(80, self._table.verticalHeader().defaultSectionSize())


def _paint_hits(
    painter: QPainter,
    rect: QRectF,
    words: str,
    hits: list[tuple[int, int]],
    style: str,
    weight: int,
) -> None:
    """Draw marks behind ranges of characters of a line."""
    fill = QColor(theme().color("warn"))  # a copy: the theme's own colour is shared
    fill.setAlphaF(0.25)
    for start, end in hits:
        left = rect.left() + paint.text_width(words[:start], style, weight)
        width = paint.text_width(words[start:end], style, weight)
        if left < rect.right():
            cell = QRectF(left - 1, rect.center().y() - 9, width + 2, 18)
            painter.fillRect(cell.intersected(rect), fill)


def paint_check(painter: QPainter, rect: QRectF, state: Any) -> None:
    """Draw a check box; `state` is a Qt.CheckState or None (unchecked)."""
    on = Qt.CheckState(state) == Qt.CheckState.Checked if state is not None else False
    cell = QRectF(rect.left(), rect.center().y() - 7, 14, 14)
    paint.box(painter, cell, "accent-soft" if on else "raised", "accent" if on else "faint", 3)
    if on:
        paint.icon(painter, cell.topLeft() + paint.QPointF(1, 1), "check", "accent", 12)
