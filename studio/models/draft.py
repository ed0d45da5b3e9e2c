"""Table of the scenarios of a generated draft, editable by the person."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from PySide6.QtCore import QObject, Qt, Signal

from engine.protocol.requests.drafts import DraftScenario
from studio.models.paged import ROOT
from studio.models.rows import RowsModel
from studio.theme.item_roles import TONE_ROLE

KEEP, INPUT, DIFFICULTY, SPLIT = range(4)
SPLITS = {"train": "practise", "validation": "test"}
HARDEST = 5


@dataclass(frozen=True)
class DraftRow:
    """Row of one scenario: as edited, as generated (None: added by a person), checked or not."""

    now: DraftScenario
    written: DraftScenario | None = None
    keep: bool = True

    @property
    def touched(self) -> bool:
        """Return whether a person added or changed the scenario."""
        return self.now != self.written


class DraftTableModel(RowsModel[DraftRow]):
    """Editable scenarios of a draft. `take(scenarios)` shows the scenarios generated so far and
    preserves the person's changes, unchecked rows and deletions. Emits `edited` on a change by the
    person."""

    columns = ("Keep", "Input", "Difficulty", "Split")
    edited = Signal()

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._deleted: set[str] = set()

    @property
    def kept(self) -> list[DraftScenario]:
        """Return the scenarios of all checked rows, as edited."""
        return [row.now for row in self.rows if row.keep]

    def begin(self) -> None:
        """Clear the table, before another draft of scenarios is generated."""
        self._deleted.clear()
        self.set_rows([])

    def take(self, scenarios: Sequence[DraftScenario]) -> None:
        """Show all `scenarios` generated so far. Edits and deletions by a person are kept, and rows
        that a person added stay at the end."""
        rows_by_input = {row.written.input: row for row in self.rows if row.written}
        rows = [
            _renewed(rows_by_input.get(one.input), one)
            for one in scenarios
            if one.input not in self._deleted
        ]
        rows += [row for row in self.rows if row.written is None]
        self._show(rows)

    def _show(self, rows: list[DraftRow]) -> None:
        """Show rows. If rows are only added, selection and open editor stay."""
        before, most = self.rows, min(len(rows), len(self.rows))
        start = next((i for i in range(most) if rows[i] != before[i]), most)
        rest = most - start
        end = next((i for i in range(rest) if rows[-1 - i] != before[-1 - i]), rest)
        if start + end < len(before):
            self.set_rows(rows)
        elif len(rows) > len(before):
            self.beginInsertRows(ROOT, start, len(rows) - end - 1)
            self.rows = rows
            self.endInsertRows()

    def add(self) -> int:
        """Add an empty scenario at the end and return its row."""
        place = len(self.rows)
        self.beginInsertRows(ROOT, place, place)
        self.rows = [*self.rows, DraftRow(DraftScenario(input=""))]
        self.endInsertRows()
        self.edited.emit()
        return place

    def delete(self, places: Collection[int]) -> None:
        """Delete rows; a deleted generated scenario does not reappear."""
        for place in places:
            if (written := self.rows[place].written) is not None:
                self._deleted.add(written.input)
        self.set_rows([row for place, row in enumerate(self.rows) if place not in places])
        self.edited.emit()

    def switch_split(self, places: Collection[int]) -> None:
        """Move each of these rows to the other split, training or validation."""
        for place in places:
            split = "train" if self.rows[place].now.split == "validation" else "validation"
            self._put(place, SPLIT, split=split)

    def switch_keep(self, places: Collection[int]) -> None:
        """Check all of these rows, or uncheck them if all are checked."""
        keep = not all(self.rows[place].keep for place in places)
        for place in places:
            self._set(place, KEEP, replace(self.rows[place], keep=keep))

    def set_difficulty(self, places: Collection[int], difficulty: int) -> None:
        """Set the difficulty of rows, 1 (easy) to 5 (hard); 0 clears it."""
        for place in places:
            self._put(place, DIFFICULTY, difficulty=difficulty or None)

    def set_input(self, place: int, text: str) -> None:
        """Set the input text of the scenario in row `place`."""
        self._put(place, INPUT, input=text)

    def _put(self, place: int, column: int, **values: Any) -> None:
        row = self.rows[place]
        self._set(place, column, replace(row, now=row.now.model_copy(update=values)))

    def _set(self, place: int, column: int, row: DraftRow) -> None:
        self.rows = [*self.rows[:place], row, *self.rows[place + 1 :]]
        self.dataChanged.emit(self.index(place, column), self.index(place, len(self.columns) - 1))
        self.edited.emit()

    def cell(self, row: DraftRow, column: int, role: int) -> Any:
        match role:
            case Qt.ItemDataRole.DisplayRole | Qt.ItemDataRole.AccessibleTextRole:
                return self._words(row)[column]
            case Qt.ItemDataRole.ToolTipRole if column == INPUT:
                return row.now.input[:2000]
            case Qt.ItemDataRole.CheckStateRole if column == KEEP:
                return Qt.CheckState.Checked if row.keep else Qt.CheckState.Unchecked
            case _ if role == TONE_ROLE and not row.keep:
                return "faint"
            case _ if role == TONE_ROLE and column == SPLIT and row.now.split == "validation":
                return "info"
        return None

    def _words(self, row: DraftRow) -> tuple[str, ...]:
        summary = " ".join(row.now.input.split())[:400]
        hard = f"{row.now.difficulty} of {HARDEST}" if row.now.difficulty else "–"
        return "", summary or "Enter the input…", hard, SPLITS[row.now.split]


def _renewed(row: DraftRow | None, written: DraftScenario) -> DraftRow:
    if row is None:
        return DraftRow(written, written)
    return replace(row, now=row.now if row.touched else written, written=written)
