"""The keys of `studio.actions.ACTIONS` as a table: action, keys, where they work."""

from collections.abc import Sequence
from typing import Any

from PySide6.QtCore import QAbstractTableModel, QObject, Qt
from PySide6.QtGui import QKeySequence

from studio.actions import ACTIONS, ActionSpec
from studio.models.heads import head
from studio.models.paged import ROOT, Index

COLUMNS = ("Action", "Keys", "Where")


def key_words(spec: ActionSpec) -> str:
    """As this platform writes it."""
    if not spec.bound or not spec.shortcut:
        return spec.shortcut
    return QKeySequence(spec.shortcut).toString(QKeySequence.SequenceFormat.NativeText)


class ShortcutTableModel(QAbstractTableModel):
    """Read-only. `UserRole` is the ActionSpec."""

    def __init__(
        self, specs: Sequence[ActionSpec] = ACTIONS, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self.specs = [spec for spec in specs if spec.shortcut]

    def rowCount(self, parent: Index = ROOT) -> int:
        return 0 if parent.isValid() else len(self.specs)

    def columnCount(self, parent: Index = ROOT) -> int:
        return 0 if parent.isValid() else len(COLUMNS)

    def headerData(
        self,
        section: int,
        orientation: Qt.Orientation,
        role: int = Qt.ItemDataRole.DisplayRole,
    ) -> Any:
        return head(COLUMNS, (), section, orientation, role)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if not index.isValid() or index.row() >= len(self.specs):
            return None
        spec = self.specs[index.row()]
        if role == Qt.ItemDataRole.DisplayRole:
            return (spec.text, key_words(spec), spec.place)[index.column()]
        return spec if role == Qt.ItemDataRole.UserRole else None
