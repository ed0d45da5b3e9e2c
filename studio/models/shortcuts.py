"""The keys of `studio.actions.actions.ACTIONS` as a table: action, keys, where they work."""

from collections.abc import Sequence
from typing import Any

from PySide6.QtCore import QObject, Qt
from PySide6.QtGui import QKeySequence

from studio.actions.actions import ACTIONS, ActionSpec
from studio.models.rows import RowsModel


def key_words(spec: ActionSpec) -> str:
    """As this platform writes it."""
    if not spec.bound or not spec.shortcut:
        return spec.shortcut
    return QKeySequence(spec.shortcut).toString(QKeySequence.SequenceFormat.NativeText)


class ShortcutTableModel(RowsModel[ActionSpec]):
    """Read-only."""

    columns = ("Action", "Keys", "Where")

    def __init__(
        self, specs: Sequence[ActionSpec] = ACTIONS, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self.rows = [spec for spec in specs if spec.shortcut]

    def cell(self, row: ActionSpec, column: int, role: int) -> Any:
        if role == Qt.ItemDataRole.DisplayRole:
            return (row.text, key_words(row), row.place)[column]
        return None
