"""Tables of a comparison: scores by scenario, and settings that differ."""

from collections.abc import Sequence
from typing import Any

from PySide6.QtCore import Qt

from engine.protocol.records.run_table import Measure, ScenarioScores, SettingDifference
from studio.models.headers import LEFT, RIGHT, head
from studio.models.rows import RowsModel
from studio.text import formatting
from studio.text.settings import setting_words
from studio.theme.item_roles import TONE_ROLE

DIFFERENT = 0.05
"""Difference from the reference from which on a score is coloured."""


class _NamedColumns(RowsModel[Any]):
    """Table whose first column is a name and whose others are the compared runs."""

    first = ""

    def __init__(self) -> None:
        super().__init__()
        self._names: Sequence[str] = ()

    def show(self, names: Sequence[str], rows: Sequence[Any]) -> None:
        """Replace runs (`names`) and rows."""
        self.beginResetModel()
        self._names, self.rows = list(names), list(rows)
        self.endResetModel()

    def columnCount(self, parent: Any = None) -> int:
        return 1 + len(self._names)

    def headerData(
        self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole
    ) -> Any:
        titles = (self.first, *self._names)
        return head(titles, range(1, len(titles)), section, orientation, role)


class ScenarioModel(_NamedColumns):
    """Scores by scenario, those on which the runs differ most first."""

    first = "Scenario"
    measure: Measure = "reward"

    def cell(self, row: ScenarioScores, column: int, role: int) -> Any:
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return RIGHT if column else LEFT
        if column == 0:
            return {
                Qt.ItemDataRole.DisplayRole: row.title,
                Qt.ItemDataRole.ToolTipRole: row.title,
            }.get(role)  # type: ignore[call-overload]
        score, first = row.scores[column - 1], row.scores[0]
        if role == Qt.ItemDataRole.DisplayRole:
            return self._words(score)
        if role == TONE_ROLE:
            if score is None:
                return "faint"
            if first is None or column == 1 or abs(score - first) < DIFFERENT:
                return "text"
            return "good" if score > first else "bad"
        return None

    def _words(self, score: float | None) -> str:
        if self.measure == "win_rate":
            return {None: formatting.ABSENT, 1.0: "won", 0.5: "tied", 0.0: "lost"}.get(
                score, formatting.percent(score)
            )
        return formatting.number(score)


class SettingModel(_NamedColumns):
    """Settings that are not equal in all runs."""

    first = "Setting"

    def cell(self, row: SettingDifference, column: int, role: int) -> Any:
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return RIGHT if column else LEFT
        words = row.key if column == 0 else setting_words(row.values[column - 1])
        if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.ToolTipRole):
            return words
        if role == TONE_ROLE:
            same = column == 0 or row.values[column - 1] == row.values[0]
            return "muted" if same and column > 1 else "text"
        return None
