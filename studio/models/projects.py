"""Lists of the workspace's projects with their newest run, and of the runs of a project."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from PySide6.QtCore import QObject, Qt

from engine.protocol.records.runs import TRAINING_KINDS, ProjectView, RunSummary
from studio.models.rows import RowsModel
from studio.store.runs.status_words import StateWords, run_words
from studio.text import formatting
from studio.theme.item_roles import BELOW_ROLE, ICON_ROLE, TONE_ROLE, VALUE_ROLE

COLUMNS = ("Project", "State", "Progress", "Validation", "Engine", "Changed")
RIGHT = (3, 5)


@dataclass(frozen=True)
class ProjectRow:
    """Project with its newest training run, or else its newest run; `missing`: folder not found."""

    path: str
    name: str
    words: str
    run: RunSummary | None = None
    missing: bool = False
    broken: bool = False


def run_title(run: RunSummary) -> str:
    """Describe a run: "amber-kestrel · Training, step 12 of 120 · on box"."""
    where = f" · on {run.host}" if run.host else ""
    return f"{run.name} · {run_words(run).text}{where}"


def project_rows(
    views: Iterable[ProjectView], runs: Iterable[RunSummary], recent: Iterable[str]
) -> list[ProjectRow]:
    """Return the rows of the projects, latest change first, then paths in `recent` that the engine
    does not list, as missing."""
    newest: dict[str, RunSummary] = {}
    for run in sorted(runs, key=lambda run: run.started_at):
        kept = newest.get(run.project_path)
        if run.kind in TRAINING_KINDS or kept is None or kept.kind not in TRAINING_KINDS:
            newest[run.project_path] = run
    rows = [_row(view, newest.get(view.path)) for view in views]
    known_paths = {row.path for row in rows}
    rows.sort(key=lambda row: -(row.run.changed_at if row.run else 0.0))
    missing = [path for path in recent if path not in known_paths]
    return rows + [
        ProjectRow(path, path.rsplit("/", 1)[-1], path, missing=True) for path in missing
    ]


def _row(view: ProjectView, run: RunSummary | None) -> ProjectRow:
    model = view.config.model.name if view.config else ""
    words = ", ".join(part for part in (view.description.rstrip("."), model) if part)
    return ProjectRow(view.path, view.name, words, run, broken=bool(view.problems))


class ProjectListModel(RowsModel[ProjectRow]):
    """Searchable list of projects; the search runs here, since there are few rows."""

    columns = COLUMNS
    right = RIGHT

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._all: list[ProjectRow] = []
        self._search = ""

    def set_rows(self, rows: Sequence[ProjectRow]) -> None:
        """Set the rows; if the projects are the same, in place, so that the selection stays."""
        same = [row.path for row in rows] == [row.path for row in self._all]
        self._all = list(rows)
        if same and not self._search:
            self.rows = list(rows)
            if rows:
                right = len(COLUMNS) - 1
                self.dataChanged.emit(self.index(0, 0), self.index(len(rows) - 1, right))
        else:
            self.search(self._search)

    def search(self, words: str) -> None:
        """Show only projects with this text in name or description; empty shows all."""
        self.beginResetModel()
        self._search = words
        wanted = words.casefold()
        self.rows = [r for r in self._all if wanted in f"{r.name} {r.words}".casefold()]
        self.endResetModel()

    @property
    def empty(self) -> bool:
        """Return whether there is no project at all, regardless of the search."""
        return not self._all

    def cell(self, row: ProjectRow, column: int, role: int) -> Any:
        match role:
            case Qt.ItemDataRole.DisplayRole:
                return _cell_words(row, column)
            case Qt.ItemDataRole.AccessibleTextRole:
                return f"{row.name}, {state_of(row).text}"
            case Qt.ItemDataRole.ToolTipRole:
                return row.path
        state = state_of(row)
        if column == 0:
            return row.words if role == BELOW_ROLE else None
        if column == 1:
            return {TONE_ROLE: state.tone, ICON_ROLE: state.icon}.get(role)
        if column == 4 and role == TONE_ROLE:
            return "muted"
        if column == 2 and role == VALUE_ROLE:
            return _sparkline(row)
        return None


def state_of(row: ProjectRow) -> StateWords:
    """Return the state of the project's run, or of the project if it has none or is missing."""
    if row.missing:
        return StateWords("Folder not found", "warn", "folder")
    if row.run is not None:
        return run_words(row.run)
    if row.broken:
        return StateWords("Has problems", "bad", "octagon-alert")
    return StateWords("Not trained yet", "faint", "circle-dashed")


def _cell_words(row: ProjectRow, column: int) -> str:
    run = row.run
    match COLUMNS[column]:
        case "Project":
            return row.name
        case "State":
            return state_of(row).text
        case "Validation":
            if run and run.win_rate:
                return f"{formatting.percent(run.win_rate.mean)} wins"
            return formatting.number(run.validation.mean if run and run.validation else None)
        case "Engine":
            return engine_words(run) if run else "This machine"
        case "Changed":
            return ago(run.changed_at, time.time()) if run else formatting.ABSENT
    return ""


def engine_words(run: RunSummary) -> str:
    """Describe the machine of a run: "box · H200"; on this machine, only the device."""
    parts = [part for part in (run.host, run.device) if part]
    return " · ".join(parts) or "This machine"


def _sparkline(row: ProjectRow) -> tuple[list[float], str] | None:
    values = row.run.progress_curve() if row.run else []
    if row.run is None or len(values) < 2:
        return None
    token = {"failed": "plot-5", "paused": "plot-4"}.get(row.run.state, "plot-1")
    return values, token


def ago(then: float, now: float) -> str:
    """Describe a Unix time relative to `now`: now, 5 min ago, yesterday, Tuesday, 3 May."""
    spent = now - then
    if spent < 60:
        return "now"
    if spent < 3600:
        return f"{int(spent // 60)} min ago"
    day, today = datetime.fromtimestamp(then), datetime.fromtimestamp(now)
    days = (today.date() - day.date()).days
    if days <= 0:
        return f"{int(spent // 3600)} h ago"
    if days == 1:
        return "yesterday"
    return day.strftime("%A") if days < 7 else f"{day.day} {day:%b}"
