"""Base of small in-memory tables: rows in a list, columns by name."""

from collections.abc import Collection, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from PySide6.QtCore import QAbstractTableModel, QObject, Qt

from studio.models.headers import head
from studio.models.paged import ROOT, Index
from studio.theme.plain_tooltips import plain_tip

R = TypeVar("R")


class RowsModel(QAbstractTableModel, Generic[R]):
    """Table of rows in memory. Subclasses define `columns` (titles) and `right` (right-aligned
    ones), and implement `cell`. `UserRole` returns the row."""

    columns: ClassVar[Sequence[str]] = ()
    right: ClassVar[Collection[int]] = ()

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.rows: list[R] = []

    def set_rows(self, rows: Sequence[R]) -> None:
        self.beginResetModel()
        self.rows = list(rows)
        self.endResetModel()

    def cell(self, row: R, column: int, role: int) -> Any:
        """Return the value of a cell for a Qt role; None for no value."""
        raise NotImplementedError

    def rowCount(self, parent: Index = ROOT) -> int:
        return 0 if parent.isValid() else len(self.rows)

    def columnCount(self, parent: Index = ROOT) -> int:
        return 0 if parent.isValid() else len(self.columns)

    def headerData(
        self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole
    ) -> Any:
        return head(self.columns, self.right, section, orientation, role)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if not index.isValid() or index.row() >= len(self.rows):
            return None
        row = self.rows[index.row()]
        if role == Qt.ItemDataRole.UserRole:
            return row
        value = self.cell(row, index.column(), role)
        tip = role == Qt.ItemDataRole.ToolTipRole and isinstance(value, str)
        return plain_tip(value) if tip else value
