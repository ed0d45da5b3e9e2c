"""Header data shared by all table models."""

from collections.abc import Collection, Sequence
from typing import Any

from PySide6.QtCore import Qt

RIGHT = int(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
LEFT = int(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter)


def head(
    columns: Sequence[str],
    right: Collection[int],
    section: int,
    orientation: Qt.Orientation,
    role: int,
) -> Any:
    """Return `headerData` of a table with these column titles for a Qt role; columns in `right`
    (indices) are right-aligned. None for other roles and row headers."""
    if orientation != Qt.Orientation.Horizontal or not 0 <= section < len(columns):
        return None
    if role == Qt.ItemDataRole.TextAlignmentRole:
        return RIGHT if section in right else LEFT
    return columns[section] if role == Qt.ItemDataRole.DisplayRole else None
