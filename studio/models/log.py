"""Log of the selected run, as a list with a maximum number of lines."""

from itertools import islice
from typing import Any

from PySide6.QtCore import QAbstractListModel, QModelIndex, QObject, Qt, Slot

from studio.models.paged import ROOT, Index
from studio.models.run import RunModel
from studio.store.runs.parts import LogLine
from studio.store.runs.state import LOG_LINES

LONGEST = 2000
"""Maximum characters of a displayed line, since Qt lays out a line in one piece."""


class LogListModel(QAbstractListModel):
    """List of log lines. `UserRole` is the LogLine."""

    def __init__(self, run: RunModel, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._run = run
        self._lines: list[LogLine] = []
        self._seen = 0
        run.selected.connect(self._reset)
        run.changed.connect(self._follow)
        self._reset()

    def rowCount(self, parent: Index = ROOT) -> int:
        return 0 if parent.isValid() else len(self._lines)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if not index.isValid() or not 0 <= index.row() < len(self._lines):
            return None
        line = self._lines[index.row()]
        if role == Qt.ItemDataRole.DisplayRole:
            text = line.text if len(line.text) <= LONGEST else f"{line.text[:LONGEST]}…"
            return f"{line.source}: {text}" if line.source else text
        return line if role == Qt.ItemDataRole.UserRole else None

    @Slot()
    def _reset(self) -> None:
        state = self._run.state
        self.beginResetModel()
        self._lines, self._seen = list(state.log), state.logged
        self.endResetModel()

    @Slot()
    def _follow(self) -> None:
        state = self._run.state
        fresh = state.logged - self._seen
        if fresh < 0 or fresh > len(state.log):
            self._reset()
            return
        if fresh:
            self._append(list(islice(state.log, len(state.log) - fresh, None)))
            self._seen = state.logged

    def _append(self, lines: list[LogLine]) -> None:
        first = len(self._lines)
        self.beginInsertRows(QModelIndex(), first, first + len(lines) - 1)
        self._lines += lines
        self.endInsertRows()
        surplus = len(self._lines) - LOG_LINES
        if surplus > 0:
            self.beginRemoveRows(QModelIndex(), 0, surplus - 1)
            del self._lines[:surplus]
            self.endRemoveRows()
