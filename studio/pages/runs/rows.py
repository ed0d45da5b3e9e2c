"""Table of the runs of a project: thousands of rows, filtered, sorted and paged by the engine."""

import time
from typing import Any

from PySide6.QtCore import QObject, Qt, Signal

from engine.protocol.records.comparison import EQUAL
from engine.protocol.records.runs import RunSummary
from engine.protocol.requests.run_table import RunQuery
from studio.models.columns import Column, ColumnsModel
from studio.models.projects import ago
from studio.runtime.tasks import TaskScope
from studio.store.runs.chosen_runs import ChosenRuns
from studio.store.runs.status_words import run_words
from studio.text import formatting
from studio.text.settings import differences
from studio.theme.item_roles import CHIPS_ROLE, ICON_ROLE, TONE_ROLE, VALUE_ROLE
from studio.widgets.tables.interval_axis import Interval

KINDS = {
    "sft": "SFT", "outside": "script", "baseline": "baseline", "imported": "import",
    "evaluation": "evaluation", "arena": "side by side", "writing": "written",
}  # fmt: skip
PRESET_NAMES = {
    "atelier": "Atelier",
    "dr_grpo": "Dr. GRPO",
    "reinforce_pp": "REINFORCE++",
    "gigpo": "GiGPO",
}


def kind_words(run: RunSummary) -> str:
    """Describe how the run trains: the algorithm's preset, or the kind of the run."""
    if run.kind != "train":
        return KINDS[run.kind]
    preset = str(run.settings.get("train.algorithm.preset", "atelier"))
    return PRESET_NAMES.get(preset, preset.upper())


def best_words(run: RunSummary) -> str:
    """Format the best validation: a win rate for judged runs, else a mean reward."""
    if run.best is None:
        return formatting.ABSENT
    is_rate = run.win_rate is not None
    return formatting.percent(run.best.mean) if is_rate else formatting.number(run.best.mean)


def _cost(run: RunSummary) -> str:
    return formatting.money(run.usd) if run.usd else ""


def _duration(run: RunSummary) -> str:
    return formatting.duration(run.trained_s) if run.trained_s else ""


COLUMNS: tuple[Column[RunSummary], ...] = (
    Column("", None, lambda r: "", right=False, help="Choose up to eight runs to compare"),
    Column("Run", "name", lambda r: r.name, right=False),
    Column("State", "state", lambda r: run_words(r).text, right=False),
    Column("Reward", None, lambda r: "", right=False,
           help="Mean reward by step; empty for judged runs, whose rewards are relative"),
    Column("Best", "best", best_words,
           help="Best validation: mean reward, or win rate against the baseline"),
    Column("95 %", None, lambda r: "", right=False,
           help="95 % interval of the best validation; the dashed line is the baseline"),
    Column("Method", "kind", kind_words, right=False),
    Column("Model", "model", lambda r: r.model.rsplit("/", 1)[-1], right=False),
    Column("Differs in", None, lambda r: "", right=False,
           help="Settings that differ from those of the selected run"),
    Column("Duration", "duration", _duration, help="Training time, without pauses"),
    Column("Cost", "cost", _cost, help="Cost of calls to judges and API models"),
    Column("Started", "started", lambda r: ago(r.started_at, time.time())),
)  # fmt: skip


class RunTableModel(ColumnsModel[RunSummary, RunQuery]):
    """Table of runs. `UserRole` is the summary. `answered(page)` follows each page."""

    answered = Signal(object)
    columns = COLUMNS
    unsorted = "started"

    def __init__(self, tasks: TaskScope, chosen: ChosenRuns, parent: QObject | None = None) -> None:
        super().__init__(tasks, RunQuery(project=""), parent)
        self._chosen = chosen
        self._reference: RunSummary | None = None
        self._ends: tuple[float, float] | None = None
        """Ends of the axis of the intervals: the widest so far."""

    def set_reference(self, run: RunSummary | None) -> None:
        """Set the run whose settings the others are compared with; None: the defaults."""
        if run != self._reference:
            self._reference = run
            self.repaint()

    def repaint(self) -> None:
        """Draw all rows again, after a change of the chosen runs."""
        if self.total:
            self.dataChanged.emit(
                self.index(0, 0), self.index(self.total - 1, len(self.columns) - 1)
            )

    def _put(self, page: int, items: list[RunSummary], total: int) -> None:
        known = [end for run in items for end in _ends(run)] + list(self._ends or ())
        self._ends = (min(known), max(known)) if known else None
        super()._put(page, items, total)

    def look(self, record: RunSummary, title: str, role: int) -> Any:
        match title, role:
            case "", Qt.ItemDataRole.CheckStateRole:
                on = self._chosen.token(record.id)
                return Qt.CheckState.Checked if on else Qt.CheckState.Unchecked
            case "", _ if role == VALUE_ROLE:
                return self._chosen.token(record.id)
            case "Run", Qt.ItemDataRole.ToolTipRole:
                return _tip(record)
            case "Run", _ if role == CHIPS_ROLE:
                return [(tag, "accent") for tag in record.notes.tags]
            case "Run", _ if role == ICON_ROLE:
                return "pin" if record.notes.pinned else ""
            case "State", _ if role == TONE_ROLE:
                return run_words(record).tone
            case "State", _ if role == ICON_ROLE:
                return run_words(record).icon
            case "Reward", _ if role == VALUE_ROLE:
                return _curve(record, self._chosen.token(record.id))
            case "95 %", _ if role == VALUE_ROLE:
                return self._interval(record)
            case "Differs in", _ if role in (Qt.ItemDataRole.ToolTipRole, CHIPS_ROLE):
                return self._differences(record, role)
        return None

    def cell(self, record: RunSummary, column: int, role: int) -> Any:
        title = self.columns[column].title
        if title == "Differs in" and role == Qt.ItemDataRole.DisplayRole:
            return " · ".join(self._found(record))
        return super().cell(record, column, role)

    def _found(self, record: RunSummary) -> list[str]:
        if self._reference is not None and record.id == self._reference.id:
            return ["selected"]
        reference = self._reference.settings if self._reference else {}
        return differences(record.settings, reference)

    def _differences(self, record: RunSummary, role: int) -> Any:
        return "\n".join(self._found(record)) if role != CHIPS_ROLE else None

    def _interval(self, run: RunSummary) -> tuple[Interval, float, float, float | None] | None:
        if run.best is None or self._ends is None:
            return None
        base = _base(run)
        token = self._chosen.token(run.id) or "muted"
        return Interval(run.best.mean, run.best.low, run.best.high, token), *self._ends, base


def _base(run: RunSummary) -> float | None:
    """Return the result of the run's first validation."""
    return EQUAL if run.win_rate else run.baseline.mean if run.baseline else None


def _ends(run: RunSummary) -> list[float]:
    """Return all values that the interval of a run needs on its axis."""
    base = _base(run)
    found = [run.best.low, run.best.high] if run.best else []
    return found + ([base] if found and base is not None else [])


def _tip(run: RunSummary) -> str:
    parts = [run.name, f"id {run.id}", ", ".join(run.notes.tags), run.notes.note]
    if run.parent:
        parts.append(f"branch of {run.parent.name} at step {run.parent.step}")
    return "\n".join(part for part in parts if part)


def _curve(run: RunSummary, token: str | None) -> tuple[list[float], str] | None:
    values = run.progress_curve()
    return (values, token or "faint") if len(values) > 1 else None
