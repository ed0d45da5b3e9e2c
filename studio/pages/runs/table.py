"""Table of runs; narrow ones hide the columns that matter least."""

from PySide6.QtCore import QRectF, Qt, Signal
from PySide6.QtGui import QKeyEvent, QMouseEvent, QPainter, QResizeEvent

from engine.protocol.records.runs import RunSummary
from studio.pages.runs.rows import COLUMNS, RunTableModel
from studio.theme.item_roles import VALUE_ROLE
from studio.widgets.painting import paint
from studio.widgets.tables.table import CellDelegate, Index, Table

# title: width (None stretches), kind, least width of the table that shows the column
_LOOK: dict[str, tuple[int | None, str, int]] = {
    "": (38, "choice", 0),
    "Run": (None, "strong", 0),
    "State": (176, "text", 0),
    "Reward": (110, "sparkline", 700),
    "Best": (70, "mono", 0),
    "95 %": (124, "interval", 860),
    "Method": (92, "text", 1180),
    "Model": (150, "text", 1400),
    "Differs in": (230, "text", 780),
    "Duration": (96, "figure", 1060),
    "Cost": (76, "figure", 1300),
    "Started": (104, "figure", 640),
}
CHOICE = 0


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
            width, kind, _ = _LOOK[column.title]
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
        for place, column in enumerate(COLUMNS):
            self.setColumnHidden(place, self.width() < _LOOK[column.title][2])

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
