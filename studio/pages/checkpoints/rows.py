"""Rows of the Checkpoints page: checkpoints of a run, its base model, models of providers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from PySide6.QtCore import QObject, Qt, Signal

from engine.protocol.records.runs import Interval as Measured
from engine.protocol.records.runs import KeptCheckpoint
from studio.models.headers import head
from studio.models.projects import ago
from studio.models.rows import RowsModel
from studio.text import formatting
from studio.theme.item_roles import CHIPS_ROLE, ICON_ROLE, TONE_ROLE, VALUE_ROLE
from studio.widgets.tables.interval_axis import Interval

MOST_CHOSEN = 4
WHY = {
    "pinned": "pinned",
    "exported": "exported",
    "branched": "a branch starts here",
    "start": "start of this run",
    "best": "one of the best checkpoints",
    "newest": "one of the newest checkpoints",
}


@dataclass(frozen=True)
class Contender:
    """Model in the list; `name` is the model name sent to the engine, `words` its title."""

    name: str
    words: str
    step: int | None = None
    """Training step; 0 for the base model, None for a provider's model."""
    kept: KeptCheckpoint | None = None
    mean: float | None = None
    """Mean training reward of the step, shown without a validation."""
    validation: Measured | None = None
    compared: bool = False
    """Whether `validation` is a win rate against the first validation."""
    kl: float | None = None
    trained_s: float | None = None
    """Training time in seconds up to the checkpoint; None if unknown."""
    marks: tuple[str, ...] = ()
    elsewhere: str = ""
    """Server with the files, if they are not on this machine; else empty."""

    @property
    def damaged(self) -> bool:
        return self.kept is not None and self.kept.state == "damaged"

    @property
    def is_base(self) -> bool:
        return self.name == "base"

    @property
    def is_checkpoint(self) -> bool:
        return self.kept is not None


class CheckpointModel(RowsModel[Contender]):
    """Table model of the contenders, some of them selected. `chosen()` keeps the order of
    selection; the first row is the reference of the comparison."""

    chosen_changed = Signal()
    columns = ("", "Name", "Mean", "Validation, 95 % CI", "KL", "Size", "Age")
    columns_compared = ("", "Name", "Win rate", "Against base, 95 % CI", "KL", "Size", "Age")
    right = (2, 4, 5, 6)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._chosen: list[str] = []
        self._now = 0.0
        self._base: float | None = None

    def show_rows(self, rows: Sequence[Contender], now: float) -> None:
        """Replace the rows, keeping the selection where possible; `now`: Unix time for ages."""
        names = [row.name for row in rows]
        kept = [name for name in self._chosen if name in names]
        if list(rows) == self.rows and kept == self._chosen:
            return
        self.beginResetModel()
        self.rows, self._now = list(rows), now
        self._base = next((r.validation.mean for r in rows if r.is_base and r.validation), None)
        changed, self._chosen = kept != self._chosen, kept
        self.endResetModel()
        if changed:
            self.chosen_changed.emit()

    def chosen(self) -> list[Contender]:
        """Return the selected rows in the order of selection."""
        known = {row.name: row for row in self.rows}
        return [known[name] for name in self._chosen]

    def choose(self, names: Sequence[str]) -> None:
        """Select the rows with these names, ignoring missing ones."""
        known = {row.name for row in self.rows}
        self._chosen = [name for name in names if name in known][:MOST_CHOSEN]
        self._tell()

    def toggle(self, row: int) -> bool:
        """Toggle the selection of a row. Returns False if it would exceed the limit of rows."""
        name = self.rows[row].name
        if name in self._chosen:
            self._chosen.remove(name)
        elif len(self._chosen) == MOST_CHOSEN:
            return False
        else:
            self._chosen.append(name)
        self._tell()
        return True

    def make_baseline(self, row: int) -> None:
        """Make a row the reference of the comparison, and select it if it is not; above the limit,
        the row selected last is deselected."""
        name = self.rows[row].name
        others = [one for one in self._chosen if one != name]
        self._chosen = [name, *others][:MOST_CHOSEN]
        self._tell()

    def _tell(self) -> None:
        if self.rows:
            self.dataChanged.emit(self.index(0, 0), self.index(len(self.rows) - 1, 1))
        self.chosen_changed.emit()

    def headerData(
        self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole
    ) -> Any:
        compared = any(row.compared for row in self.rows)
        titles = self.columns_compared if compared else self.columns
        return head(titles, self.right, section, orientation, role)

    def cell(self, row: Contender, column: int, role: int) -> Any:
        match role:
            case Qt.ItemDataRole.DisplayRole:
                return self._words(row)[column]
            case Qt.ItemDataRole.ToolTipRole | Qt.ItemDataRole.AccessibleDescriptionRole:
                return _why(row)
            case Qt.ItemDataRole.CheckStateRole if column == 0:
                on = row.name in self._chosen
                return Qt.CheckState.Checked if on else Qt.CheckState.Unchecked
            case _ if role == CHIPS_ROLE and column == 1:
                baseline = self._chosen[:1] == [row.name] and len(self._chosen) > 1
                return [*_chips(row), *([("baseline", "muted")] if baseline else [])]
            case _ if role == ICON_ROLE and column == 1:
                return _icon(row)
            case _ if role == TONE_ROLE and row.damaged:
                return "bad"
            case _ if role == VALUE_ROLE and column == 3:
                return self._interval(row)
        return None

    def _words(self, row: Contender) -> tuple[str, ...]:
        kept = row.kept.checkpoint if row.kept else None
        mean = row.validation.mean if row.validation else row.mean
        return (
            "",
            row.words,
            formatting.percent(mean) if row.compared else formatting.number(mean),
            "" if self._interval(row) else _untested(row),
            "0" if row.is_base else formatting.number(row.kl, 3) if row.kl is not None else "–",
            formatting.size(kept.bytes) if kept else "",
            ago(kept.at, max(self._now, kept.at)) if kept else "",
        )

    def _interval(self, row: Contender) -> tuple[Interval, float, float, float | None] | None:
        low, high = self._ends()
        if row.validation is not None:
            tone = "plot-1" if "best" in row.marks else "muted"
            v = row.validation
            return Interval(v.mean, v.low, v.high, tone), low, high, self._base
        if row.mean is not None:
            return Interval(row.mean, token="faint", mark="circle"), low, high, self._base
        return None

    def _ends(self) -> tuple[float, float]:
        """Return the ends of the axis: 0 to 1, or wider where the scores need it."""
        ends = [v for r in self.rows if r.validation for v in (r.validation.low, r.validation.high)]
        return min([0.0, *ends]), max([1.0, *ends])


def _untested(row: Contender) -> str:
    loss = row.kept.loss if row.kept else None
    return "not validated" if loss is None else f"held-out loss {formatting.number(loss, 3)}"


def _chips(row: Contender) -> list[tuple[str, str]]:
    chips = [(mark, "accent" if mark == "best" else "muted") for mark in row.marks]
    return [(f"on {row.elsewhere}", "info"), *chips] if row.elsewhere else chips


def _icon(row: Contender) -> str:
    if row.damaged:
        return "octagon-alert"
    return "lock" if row.kept and "pinned" in row.kept.kept_by else ""


def _why(row: Contender) -> str:
    kept = row.kept
    if kept is None:
        return (
            "The base model before any training"
            if row.is_base
            else ("Remote model, called over its API")
        )
    if row.damaged:
        return "Files are missing or damaged, so this checkpoint cannot be used"
    there = f"On {row.elsewhere}, not on this machine: fetch the checkpoint to use it here · "
    where = there if row.elsewhere else ""
    why = ", ".join(WHY[reason] for reason in kept.kept_by) or "until the next checkpoint is saved"
    branches = f" · branches: {', '.join(kept.branches)}" if kept.branches else ""
    note = f" · {kept.note}" if kept.note else ""
    time = f"After {formatting.duration(row.trained_s)} of training · " if row.trained_s else ""
    return f"{where}{time}Kept: {why}{branches}{note}"
