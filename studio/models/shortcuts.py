"""Table of the shortcuts in `studio.actions.actions.ACTIONS`: action, keys, context."""

from collections.abc import Sequence
from typing import Any

from PySide6.QtCore import QObject, Qt
from PySide6.QtGui import QKeySequence

from studio.actions.actions import ACTIONS, ActionSpec
from studio.models.rows import RowsModel


def key_words(spec: ActionSpec) -> str:
    """Key combination in the notation of the platform."""
    if not spec.bound or not spec.shortcut:
        return spec.shortcut
    return QKeySequence(spec.shortcut).toString(QKeySequence.SequenceFormat.NativeText)


def _haystack(spec: ActionSpec) -> str:
    return f"{spec.text} {key_words(spec)} {spec.place}".casefold()


class ShortcutTableModel(RowsModel[ActionSpec]):
    """Read-only table of shortcuts."""

    columns = ("Action", "Shortcut", "Where")

    def __init__(
        self, specs: Sequence[ActionSpec] = ACTIONS, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._all = [spec for spec in specs if spec.shortcut]
        self.rows = list(self._all)

    def search(self, words: str) -> bool:
        """Show only the rows with all of the words in action, key or page; return whether any
        is left."""
        wanted = words.casefold().split()
        self.set_rows([row for row in self._all if all(w in _haystack(row) for w in wanted)])
        return bool(self.rows)

    def cell(self, row: ActionSpec, column: int, role: int) -> Any:
        if role == Qt.ItemDataRole.DisplayRole:
            return (row.text, key_words(row), row.place)[column]
        return None
