"""Tables of demonstration files and of their invalid lines."""

from typing import Any

from PySide6.QtCore import Qt

from engine.protocol.records.demonstrations import BadLine, DemonstrationFile
from studio.models.rows import RowsModel
from studio.store.projects.demonstrations import ROLES, forms_words
from studio.text import formatting
from studio.theme.item_roles import TONE_ROLE


class FileTableModel(RowsModel[DemonstrationFile]):
    """Demonstration files, one per row."""

    columns = ("File", "Used", "Format", "Lines", "Invalid", "Tokens", "Trained")
    right = (3, 4, 5, 6)

    def cell(self, row: DemonstrationFile, column: int, role: int) -> Any:
        if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.ToolTipRole):
            return self._words(row)[column]
        if role == TONE_ROLE and (row.problem or (column == 4 and row.bad_count)):
            return "bad"
        return None

    def _words(self, row: DemonstrationFile) -> tuple[str, ...]:
        counts = (row.lines, row.bad_count, row.tally.tokens, row.tally.trained)
        named = (row.path, ROLES[row.role], forms_words(row))
        return (*named, *(formatting.count(value) for value in counts))


class BadLineModel(RowsModel[BadLine]):
    """Invalid lines, one per row."""

    columns = ("File", "Line", "Reason")
    right = (1,)

    def cell(self, row: BadLine, column: int, role: int) -> Any:
        if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.ToolTipRole):
            return (row.file, f"{row.line:,}", row.reason)[column]
        return None
