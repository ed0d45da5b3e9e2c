"""Table of runs; narrow ones hide the columns that matter least."""

from PySide6.QtCore import QRectF, Qt, Signal
from PySide6.QtGui import QKeyEvent, QMouseEvent, QPainter, QResizeEvent

from engine.protocol.records.runs import RunSummary
from studio.pages.runs.rows import COLUMNS, RunTableModel
from studio.theme.item_roles import VALUE_ROLE
from studio.widgets.painting import paint
from studio.widgets.tables.table import CellDelegate, Index, Table

# title: width (None stretches), kind
_LOOK: dict[str, tuple[int | None, str]] = {
    "": (38, "choice"),
    "Run": (None, "strong"),
    "State": (176, "text"),
    "Reward": (110, "sparkline"),
    "Best": (70, "mono"),
    "95 %": (124, "interval"),
    "Method": (92, "text"),
    "Model": (150, "text"),
    "Differs in": (230, "text"),
    "Duration": (96, "figure"),
    "Cost": (76, "figure"),
    "Started": (104, "figure"),
}
LEAST_NAME_PX = 180
"""Least width of the column with the names of the runs; others are hidden before it is narrower."""
BY_IMPORTANCE = (
    *("", "Run", "State", "Best", "Differs in", "Reward", "Started", "95 %"),
    *("Duration", "Method", "Cost", "Model"),
)
CHOICE = 0


def columns_in(width: int) -> list[str]:
    """Titles of the most important columns that a table of `width` pixels has room for."""
    shown: list[str] = []
    for title in BY_IMPORTANCE:
        width -= _LOOK[title][0] or LEAST_NAME_PX
        if width < 0:
            break
        shown.append(title)
    return shown


class _Cells(CellDelegate):
    def paint_cell(self, painter: QPainter, rect: QRectF, kind: str, index: Index) -> None:
        if kind == "choice":
            paint_choice(painter, rect, index.data(VALUE_ROLE))
        else:
            super().paint_cell(painter, rect, kind, index)


def paint_choice(painter: QPainter, rect: QRectF, token: str | None) -> None:
    """Draw the box of a chosen run in its colour (`token`), or an empty one (None)."""
    box = QRectF(rect.left(), rect.center().y() - 7, 14, 14)
    paint.box(painter, box, token or "raised", token or "faint", 3)
    if token:
        paint.icon(painter, box.topLeft() + paint.QPointF(1, 1), "check", "surface", 12)


class RunsTable(Table):
    """Table of runs. A click on a box, or Space, chooses a run: `row_marked(row)`. Delete asks to
    delete: `delete_wanted`."""

    delete_wanted = Signal()

    def __init__(self, model: RunTableModel) -> None:
        super().__init__("Runs")
        self.cells = _Cells(self)
        self.setItemDelegate(self.cells)
        self.setModel(model)
        for place, column in enumerate(COLUMNS):
            width, kind = _LOOK[column.title]
            self.set_column(place, width, kind)
        self.setSortingEnabled(True)
        self.horizontalHeader().setSortIndicator(-1, Qt.SortOrder.DescendingOrder)
        self.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)

    def run_at(self, row: int) -> RunSummary | None:
        """Return the run of a row; None if it is not loaded."""
        record = self.model().index(row, 1).data(Qt.ItemDataRole.UserRole)
        return record if isinstance(record, RunSummary) else None

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        shown = columns_in(self.viewport().width())
        for place, column in enumerate(COLUMNS):
            self.setColumnHidden(place, column.title not in shown)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        index = self.indexAt(event.position().toPoint())
        if event.button() == Qt.MouseButton.LeftButton and index.column() == CHOICE:
            self.row_marked.emit(index.row())
        else:
            super().mousePressEvent(event)

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        if self.indexAt(event.position().toPoint()).column() == CHOICE:
            self.mousePressEvent(event)  # two quick clicks choose, and no longer
        else:
            super().mouseDoubleClickEvent(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Delete:
            self.delete_wanted.emit()
        else:
            super().keyPressEvent(event)
