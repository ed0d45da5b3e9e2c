"""Editable table of a scenario file: one row per line, one column per key, with undo."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from PySide6.QtCore import QAbstractTableModel, QObject, Qt, Signal
from PySide6.QtGui import QUndoCommand, QUndoStack

from engine.protocol.problems import Problem
from engine.protocol.records.curves import ScenarioCurve
from studio.models.paged import ROOT, Index
from studio.text import formatting
from studio.theme.item_roles import TONE_ROLE

Row = dict[str, Any]
MOST_COLUMNS = 12
BEFORE = "before training"
ROUNDING = 1e-6


def read_jsonl(text: str, name: str = "") -> tuple[list[Row], list[Problem]]:
    """Parse JSON Lines into objects, with one problem per invalid line; `name`: the file's name."""
    rows: list[Row] = []
    problems: list[Problem] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except ValueError as error:
            problems.append(_bad(name, number, f"Line {number} is not JSON: {error}"))
            continue
        if isinstance(value, dict):
            rows.append(value)
        else:
            kind = type(value).__name__
            problems.append(_bad(name, number, f"Line {number} is a {kind}, not an object."))
    return rows, problems


def _bad(name: str, number: int, message: str) -> Problem:
    return Problem(code="scenarios.line", message=message, where=f"{name}:{number}")


def columns_of(rows: Iterable[Row]) -> list[str]:
    """Return the keys of all rows in order of first appearance; `id` first if present."""
    keys: dict[str, None] = {}
    for row in rows:
        keys.update(dict.fromkeys(row))
    names = sorted(keys, key=lambda key: key != "id")
    return names[:MOST_COLUMNS]


def is_of(curve: ScenarioCurve, row: Row) -> bool:
    """Return whether a measured scenario is still this row: one of the row's texts equals the
    measured title, or begins with it if it was shortened ("…")."""
    title, cut = curve.title.removesuffix("…"), curve.title.endswith("…")
    texts = [" ".join(value.split()) for value in row.values() if isinstance(value, str)]
    if cut:
        return any(text.startswith(title) for text in texts)
    return title == curve.scenario_id or title in texts


def is_silent(curve: ScenarioCurve) -> bool:
    """Return whether a scenario gave no signal: at least two scored trajectories, with rewards that
    are equal within rounding errors."""
    if curve.spread is None or curve.mean is None or curve.attempts - curve.unscored < 2:
        return False
    return curve.spread <= ROUNDING * max(1.0, abs(curve.mean))


class ScenarioTableModel(QAbstractTableModel):
    """Editable table of scenarios. Edits go through `undo`; `rows` is the content to be written.
    Emits `loaded` after a file was read. If the untrained model was measured, a read-only last
    column shows the results."""

    rejected = Signal(object)
    edited = Signal()

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.rows: list[Row] = []
        self.columns: list[str] = []
        self.undo = QUndoStack(self)
        self.loaded = False
        self._written: list[Row] = []
        self._before: Mapping[str, ScenarioCurve] = {}

    @property
    def dirty(self) -> bool:
        """Whether there are unsaved changes."""
        return self.rows != self._written

    def load(self, rows: Sequence[Row]) -> None:
        """Show the file's current content and clear the undo history."""
        self.loaded, self._written = True, list(rows)
        self.replace(list(rows))
        self.undo.clear()

    def set_written(self, rows: Sequence[Row]) -> None:
        """Set `rows` as the saved content of the file; the table is `dirty` if its rows now
        differ."""
        self._written = list(rows)
        if self.dirty:
            self.undo.resetClean()
        else:
            self.undo.setClean()
        self.edited.emit()

    def add(self) -> None:
        self.undo.push(_Replace(self, [*self.rows, self._blank()], "Add scenario"))

    def remove(self, places: Iterable[int]) -> None:
        """Delete the rows at these indices as one undoable step."""
        gone = set(places)
        kept = [row for place, row in enumerate(self.rows) if place not in gone]
        if gone:
            self.undo.push(_Replace(self, kept, f"Delete {len(gone)} scenarios"))

    def take_in(self, rows: Sequence[Row]) -> None:
        """Append imported rows as one undoable step."""
        if rows:
            self.undo.push(_Replace(self, [*self.rows, *rows], f"Import {len(rows)} scenarios"))

    def _blank(self) -> Row:
        blank: Row = dict.fromkeys(self.columns or ["prompt"], "")
        if "id" in blank:
            blank["id"] = f"s{len(self.rows) + 1}"
        return blank

    def show_before(self, found: Mapping[str, ScenarioCurve]) -> None:
        """Set the untrained model's statistics by scenario id; without any, hide their column."""
        place = len(self.columns)
        if found and not self._before:
            self.beginInsertColumns(ROOT, place, place)
            self._before = found
            self.endInsertColumns()
        elif self._before and not found:
            self.beginRemoveColumns(ROOT, place, place)
            self._before = found
            self.endRemoveColumns()
        elif found:
            self._before = found
            self.dataChanged.emit(self.index(0, place), self.index(len(self.rows) - 1, place))

    def before(self, row: int) -> ScenarioCurve | None:
        """Return the untrained model's statistics of a row; None if its current text has none."""
        curve = self._measured(row)
        return curve if curve and is_of(curve, self.rows[row]) else None

    def silent(self) -> list[int]:
        """Return the rows whose scenarios gave no signal before training."""
        found = [(row, self._measured(row)) for row in range(len(self.rows))]
        return [
            row
            for row, curve in found
            if curve and is_silent(curve) and is_of(curve, self.rows[row])
        ]

    @property
    def rates(self) -> list[float]:
        """Return the mean rewards of all measured scenarios that have one."""
        return [one.mean for one in self._before.values() if one.mean is not None]

    def _measured(self, row: int) -> ScenarioCurve | None:
        return self._before.get(str(self.rows[row].get("id", row + 1)))

    # Called by the undo commands

    def replace(self, rows: list[Row]) -> None:
        """Show other rows and emit `edited`; called by the undo commands."""
        self.beginResetModel()
        self.rows, self.columns = rows, columns_of(rows)
        self.endResetModel()
        self.edited.emit()

    def put(self, row: int, key: str, value: Any) -> None:
        """Set the value of a key, the title of an existing column, in a row; None removes the key
        from the row."""
        changed = dict(self.rows[row])
        if value is None:
            changed.pop(key, None)
        else:
            changed[key] = value
        self.rows[row] = changed
        index = self.index(row, self.columns.index(key))
        self.dataChanged.emit(index, index)
        self.edited.emit()

    # Qt interface

    def rowCount(self, parent: Index = ROOT) -> int:
        return 0 if parent.isValid() else len(self.rows)

    def columnCount(self, parent: Index = ROOT) -> int:
        return 0 if parent.isValid() else len(self.columns) + bool(self._before)

    def headerData(
        self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole
    ) -> Any:
        if role != Qt.ItemDataRole.DisplayRole:
            return None
        if orientation == Qt.Orientation.Vertical:
            return str(section + 1)
        heads = [*self.columns, BEFORE]
        return heads[section] if 0 <= section < self.columnCount() else None

    def flags(self, index: Index) -> Qt.ItemFlag:
        flags = super().flags(index)
        data = index.isValid() and index.column() < len(self.columns)
        return flags | Qt.ItemFlag.ItemIsEditable if data else flags

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if not index.isValid() or index.row() >= len(self.rows):
            return None
        if index.column() == len(self.columns):
            return _before_cell(self.before(index.row()), role)
        value = self.rows[index.row()].get(self.columns[index.column()])
        if role == Qt.ItemDataRole.DisplayRole:
            return _shown(value).replace("\n", " ⏎ ")[:2000]
        return _shown(value) if role == Qt.ItemDataRole.EditRole else None

    def setData(self, index: Index, value: Any, role: int = Qt.ItemDataRole.EditRole) -> bool:
        if role != Qt.ItemDataRole.EditRole or not self.flags(index) & Qt.ItemFlag.ItemIsEditable:
            return False
        key = self.columns[index.column()]
        old = self.rows[index.row()].get(key)
        try:
            new = _typed(str(value), old)
        except ValueError as error:
            hint = "The previous value was JSON; enter JSON again."
            self.rejected.emit(_bad_cell(key, index.row(), str(error), hint))
            return False
        if new != old:
            self.undo.push(_Put(self, index.row(), key, old, new))
        return True


def _before_cell(curve: ScenarioCurve | None, role: int) -> Any:
    if curve is None:
        looks: dict[int, str] = {Qt.ItemDataRole.DisplayRole: "not measured", TONE_ROLE: "muted"}
        return looks.get(role)
    silent = is_silent(curve)
    if role == Qt.ItemDataRole.DisplayRole:
        words = "unscored" if curve.mean is None else formatting.number(curve.mean)
        return f"{words} · no signal" if silent else words
    if role == TONE_ROLE:
        return "warn" if curve.mean is None else "muted" if silent else "good"
    return None


def _bad_cell(key: str, row: int, message: str, hint: str) -> Problem:
    text = f"{key} of scenario {row + 1} is not JSON: {message}"
    return Problem(code="scenarios.value", message=text, hint=hint)


def _shown(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _typed(text: str, old: Any) -> Any:
    """Parse text typed in a cell with the value `old`: a string stays one, other values are JSON.
    In a cell without a value, empty text stays None."""
    if old is None:
        return text or None
    return text if isinstance(old, str) else json.loads(text)


class _Put(QUndoCommand):
    def __init__(self, model: ScenarioTableModel, row: int, key: str, old: Any, new: Any) -> None:
        super().__init__(f"Edit {key}")
        self._model, self._row, self._key = model, row, key
        self._old, self._new = old, new

    def redo(self) -> None:
        self._model.put(self._row, self._key, self._new)

    def undo(self) -> None:
        self._model.put(self._row, self._key, self._old)


class _Replace(QUndoCommand):
    def __init__(self, model: ScenarioTableModel, rows: list[Row], words: str) -> None:
        super().__init__(words)
        self._model, self._before, self._after = model, list(model.rows), rows

    def redo(self) -> None:
        self._model.replace(list(self._after))

    def undo(self) -> None:
        self._model.replace(list(self._before))
