"""List of models: name and size in the first line of a row, chips in the second."""

from typing import Any

from PySide6.QtCore import QRectF, Qt, Signal
from PySide6.QtGui import QKeyEvent, QPainter

from studio.models.rows import RowsModel
from studio.store.hub.rows import Chips, ModelRow
from studio.widgets.painting import paint
from studio.widgets.tables.table import CellDelegate, Index, Table

ROW_PX = 56
_SOFT = {"accent": "accent-soft", "warn": "warn-soft", "good": "good-soft", "bad": "bad-soft"}


class ModelRows(RowsModel[ModelRow]):
    """Models in the list, in display order."""

    columns = ("Model",)

    def cell(self, row: ModelRow, column: int, role: int) -> Any:
        if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.ToolTipRole):
            return row.name
        return row.spoken if role == Qt.ItemDataRole.AccessibleTextRole else None

    def replace(self, row: ModelRow) -> None:
        """Replace the row with the same model name; does nothing if no row has this name."""
        for place, shown in enumerate(self.rows):
            if shown.name == row.name and shown != row:
                self.rows[place] = row
                index = self.index(place, 0)
                self.dataChanged.emit(index, index)


class _Cells(CellDelegate):
    def paint_cell(self, painter: QPainter, rect: QRectF, kind: str, index: Index) -> None:
        row = index.data(Qt.ItemDataRole.UserRole)
        if not isinstance(row, ModelRow):
            return
        first = QRectF(rect.left(), rect.top() + 8, rect.width(), 20)
        used = paint.text_width(row.figure, "mono")
        name = first.adjusted(0, 0, -used - 12, 0)
        paint.text(painter, name, row.title, "muted" if row.faint else "text", "body", 500)
        paint.text(painter, first, row.figure, "muted", "mono", align=paint.RIGHT, elide=False)
        _paint_chips(painter, QRectF(rect.left(), rect.top() + 30, rect.width(), 18), row.chips)


def _paint_chips(painter: QPainter, rect: QRectF, chips: Chips) -> None:
    """Draw the chips that fit, from the left."""
    x = rect.left()
    for words, tone in chips:
        width = round(paint.text_width(words, "caption", 500)) + 12
        if x + width > rect.right():
            return
        paint.box(painter, QRectF(x, rect.top(), width, 18), _SOFT.get(tone, "chip"), None, 4)
        cell = QRectF(x, rect.top(), width, 18)
        paint.text(painter, cell, words, tone, "caption", 500, paint.CENTER)
        x += width + 6


class ModelTable(Table):
    """List of models. Signals: `chosen(name)` when the current row changes, `row_opened(row)` on
    Enter, `delete_wanted` on Delete, `left` on Escape."""

    chosen = Signal(str)
    delete_wanted = Signal()
    left = Signal()

    def __init__(self, name: str) -> None:
        super().__init__(name, row_px=ROW_PX)
        self.rows = ModelRows(self)
        self.cells = _Cells(self)
        self.setItemDelegate(self.cells)
        self.setModel(self.rows)
        self.set_column(0, None)
        self.horizontalHeader().hide()
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.selectionModel().currentRowChanged.connect(lambda *_: self._tell())

    def current(self) -> str:
        """Return the name of the current model; empty if none is."""
        row = self.currentIndex().row()
        return self.rows.rows[row].name if 0 <= row < len(self.rows.rows) else ""

    def show_rows(self, rows: list[ModelRow]) -> None:
        """Replace the rows; the current model stays current if it is still there, else the first
        one is."""
        if rows == self.rows.rows:
            return
        before = self.current()
        if [row.name for row in rows] == [row.name for row in self.rows.rows]:
            for row in rows:
                self.rows.replace(row)
            return
        scrolled = self.verticalScrollBar().value()
        self.rows.set_rows(rows)
        self.choose(before if any(row.name == before for row in rows) else "")
        self.verticalScrollBar().setValue(scrolled)

    def choose(self, name: str) -> None:
        """Make a model current, by name; the first one if the name is empty or not in the list."""
        names = [row.name for row in self.rows.rows]
        place = names.index(name) if name in names else 0
        if names:
            self.setCurrentIndex(self.rows.index(place, 0))

    def visible_names(self) -> list[str]:
        """Return the names of the rows in view."""
        first = max(0, self.rowAt(0))
        last = self.rowAt(self.viewport().height() - 1)
        last = len(self.rows.rows) - 1 if last < 0 else last
        return [row.name for row in self.rows.rows[first : last + 1]]

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Delete:
            self.delete_wanted.emit()
        elif event.key() == Qt.Key.Key_Escape:
            self.left.emit()
        else:
            super().keyPressEvent(event)

    def _tell(self) -> None:
        if name := self.current():
            self.chosen.emit(name)
