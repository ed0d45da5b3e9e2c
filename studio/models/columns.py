"""Paged table with declared columns: titles, texts and sort keys."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Generic

from PySide6.QtCore import Qt

from studio.models.headers import LEFT, RIGHT, head
from studio.models.paged import ROOT, Index, PagedModel, Q, R


@dataclass(frozen=True)
class Column(Generic[R]):
    title: str
    sort: str | None
    """Sort key of the engine; None for a column that cannot be sorted."""
    words: Callable[[R], str]
    right: bool = True
    help: str = ""


class ColumnsModel(PagedModel[R, Q]):
    """Paged table. Subclasses set `columns` and `unsorted`, the default sort key."""

    columns: ClassVar[tuple[Column[Any], ...]]
    unsorted: ClassVar[str]

    def columnCount(self, parent: Index = ROOT) -> int:
        return 0 if parent.isValid() else len(self.columns)

    def headerData(
        self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole
    ) -> Any:
        if role == Qt.ItemDataRole.ToolTipRole and 0 <= section < len(self.columns):
            return self.columns[section].help or None
        titles = [column.title for column in self.columns]
        right = [place for place, column in enumerate(self.columns) if column.right]
        return head(titles, right, section, orientation, role)

    def cell(self, record: R, column: int, role: int) -> Any:
        """Return a cell's text or alignment; for other Qt roles, the result of `look`."""
        if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.AccessibleTextRole):
            return self.columns[column].words(record)
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return RIGHT if self.columns[column].right else LEFT
        return self.look(record, self.columns[column].title, role)

    def look(self, record: R, title: str, role: int) -> Any:
        """Return colour, icon or painted value of a cell for a Qt role; `title`: its column's
        title."""
        raise NotImplementedError

    def sort(self, column: int, order: Qt.SortOrder = Qt.SortOrder.AscendingOrder) -> None:
        """Request another order from the engine; no effect for columns without a sort key."""
        sort = self.columns[column].sort if 0 <= column < len(self.columns) else self.unsorted
        if sort is not None:
            descending = order == Qt.SortOrder.DescendingOrder
            change = {"sort": sort, "descending": descending}
            self.set_query(self.query.model_copy(update=change))
