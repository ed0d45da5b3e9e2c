"""Scenarios tab: editable table with add, delete, import, undo and save."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from PySide6.QtCore import Qt, Signal, Slot
from PySide6.QtGui import QKeySequence, QShortcut
from PySide6.QtWidgets import QAbstractItemView, QFileDialog, QWidget

from engine.protocol.problems import Problem
from engine.protocol.records.curves import CurveQuery, ScenarioCurve
from engine.protocol.records.runs import ProjectView, RunSummary, Split
from engine.protocol.requests.runs import ScenarioPage, WriteScenarios
from studio.models.scenarios import Row, ScenarioTableModel, read_jsonl
from studio.pages.conflict_dialog import CHANGED, choose
from studio.runtime.tasks import TaskScope
from studio.services.session import Session
from studio.text import formatting
from studio.theme.plain_tooltips import set_tip
from studio.widgets.controls.buttons import Button
from studio.widgets.controls.segmented import Segmented
from studio.widgets.layouts import STRETCH, hbox, vbox
from studio.widgets.painting.paint import text_width
from studio.widgets.tables.table import Table
from studio.widgets.text.text import Text

File = tuple[str, Split]
"""Project folder and split."""
SPLITS: tuple[Split, ...] = ("train", "validation")
PAGE = 1000
FITTED = 50
WIDEST = 260
SILENT = (
    "For each of these scenarios, all rollouts of the untrained model got the same reward, so "
    "they give no signal. Make them easier or harder, or delete them."
)


class ScenariosTab(QWidget):
    """Scenarios tab; changes are written only on Save and can be undone. Unsaved rows are kept per
    project and split and restored later."""

    changed = Signal(object)
    measured = Signal()
    """Emitted when `rates` changes."""

    def __init__(self, session: Session, tasks: TaskScope, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._session, self._tasks = session, tasks
        self._file: File = ("", "train")
        self._models: dict[File, ScenarioTableModel] = {self._file: self._new_model()}
        self._which = Segmented(["Train", "Validation"], "Scenario set")
        self._table = Table("Scenarios")
        self._words = Text("", "label", 400, "muted", elide=True)
        self._tools = [
            (Button(words, "quiet", icon=icon), slot)
            for words, icon, slot in (
                ("Add", "plus", lambda: self.model.add()),
                ("Delete", "trash-2", self._delete),
                ("Import…", "import", self._import),
                ("Undo", "undo-2", lambda: self.model.undo.undo()),
            )
        ]
        self._silent = Button(
            "Select scenarios without signal", "quiet", icon="list-checks", height=24
        )
        set_tip(self._silent, SILENT)
        self._save = Button("Save", "outlined", icon="save", key="Ctrl S")
        self._marks: dict[File, str] = {}
        """Fingerprint of each file when it was read."""
        self._measured = ("", "", 0.0)
        """Project, run id and time of change (Unix) of the baseline shown."""
        self._build()
        self._which.chosen.connect(lambda _: self.load())

    @property
    def model(self) -> ScenarioTableModel:
        return self._models[self._file]

    @property
    def rates(self) -> list[float]:
        """Return the baseline mean reward of each measured training scenario of the open project;
        empty before the file is loaded."""
        model = self._models.get((self._session.project.path, "train"))
        return model.rates if model else []

    @property
    def split(self) -> Split:
        return SPLITS[self._which.index()]

    def show_split(self, split: Split) -> None:
        self._which.set_index(SPLITS.index(split))
        self.load()

    def load(self) -> None:
        """Load the file of the open project through the engine, unless it has unsaved edits."""
        file = self._session.project.path, self.split
        if file != self._file:
            self._turn(file)
        if self.model.dirty:
            self._tasks.cancel("scenarios")
            self._show_state()
        else:
            self._words.set_tone("muted")
            self._words.set_words("Loading…")
            self._tasks.run("scenarios", self._read(*file), self._show, self._reject)

    def show_baseline(self, run: RunSummary | None) -> None:
        """Show the results of a baseline run per training scenario; None hides them."""
        path = self._session.project.path
        measured = (path, run.id if run else "", run.changed_at if run else 0.0)
        if measured == self._measured:
            return
        self._measured = measured
        if run is None:
            self._tasks.cancel("baseline")
            self._show_before(path, [])
        else:
            job = self._read_curves(run.id)
            self._tasks.run("baseline", job, lambda found: self._show_before(path, found))

    async def _read_curves(self, run_id: str) -> list[ScenarioCurve]:
        query = CurveQuery(split="validation", sort="scenario", descending=False, limit=PAGE)
        client = self._session.client  # baselines store their rollouts in the validation split
        return await _all_pages(
            lambda offset: client.curves(run_id, query.model_copy(update={"offset": offset}))
        )

    def _show_before(self, path: str, found: list[ScenarioCurve]) -> None:
        file: File = path, "train"
        if file not in self._models:
            self._models[file] = self._new_model()
        self._models[file].show_before({one.scenario_id: one for one in found})
        self._show_silent()
        self.measured.emit()

    def _show_silent(self) -> None:
        silent = len(self.model.silent())
        self._silent.setVisible(silent > 0)
        self._silent.set_words(f"Select {silent} without signal")

    def _select_silent(self) -> None:
        select = self._table.selectionModel()
        flags = select.SelectionFlag.Select | select.SelectionFlag.Rows
        select.clearSelection()
        for row in self.model.silent():
            select.select(self.model.index(row, 0), flags)
        self._table.setFocus()

    def _turn(self, file: File) -> None:
        """Show the table of another file."""
        self._file = file
        if file not in self._models:
            self._models[file] = self._new_model()
        before = self._table.selectionModel()
        self._table.setModel(self.model)
        before.deleteLater()
        self._fit()
        self._show_state()

    def _new_model(self) -> ScenarioTableModel:
        model = ScenarioTableModel(self)
        model.edited.connect(self._show_state)
        model.rejected.connect(self._reject)
        return model

    def show_files(self, files: Mapping[str, str]) -> None:
        """Reload the visible file if its fingerprint in `files` (path → fingerprint) differs."""
        mark = files.get(self._name(), "")
        if not self.isVisible() or mark == self._marks.get(self._file, mark):
            return
        self.load()
        if self.model.dirty:
            self._words.set_words(
                f"{self._name()} changed on disk. When you save, choose which version to keep."
            )

    def _name(self) -> str:
        """Return the path of the visible file in its project."""
        info = self._session.project.split(self.split)
        return info.path if info else ""

    async def _read(self, path: str, split: Split) -> tuple[File, list[Row], str]:
        """Read rows and fingerprint of a file; retries if the file changes meanwhile."""
        client, marks = self._session.client, list[str]()

        async def page(offset: int) -> ScenarioPage:
            found = await client.scenarios(path, split, offset, PAGE)
            marks.append(found.fingerprint)
            return found

        found = await _all_pages(page)
        while len(set(marks)) > 1:
            marks.clear()
            found = await _all_pages(page)
        return (path, split), [scenario.data for scenario in found], marks[0]

    def _show(self, answer: tuple[File, list[Row], str]) -> None:
        """Show loaded rows; edits made since the request are kept, including their undo history."""
        file, rows, mark = answer
        model = self._models[file]
        if not model.loaded or not model.dirty:
            self._marks[file] = mark
        if not model.loaded or (not model.dirty and model.rows != rows):
            model.load(rows)
            self._fit()
        self._show_state()

    def save(self) -> None:
        """Write the visible file; ask if another program changed it."""
        if self.model.dirty and self.model.loaded:
            self._write(self._file, list(self.model.rows), self._marks.get(self._file, ""))

    def _write(self, file: File, rows: list[Row], read: str) -> None:
        self._tasks.cancel("scenarios")  # its result is outdated
        job = self._session.client.write_scenarios(*file, WriteScenarios(items=rows, read=read))
        self._tasks.run(
            f"save scenarios {file}",
            job,
            lambda view: self._saved(file, rows, view),
            lambda problem: self._not_saved(file, rows, problem),
        )

    def _saved(self, file: File, rows: list[Row], view: ProjectView) -> None:
        self._models[file].set_written(rows)
        info = next((one for one in view.splits if one.split == file[1]), None)
        self._marks[file] = view.files.get(info.path, "") if info else ""
        self._session.notice.emit(f"{formatting.plural(len(rows), 'scenario')} saved.")
        if view.path == self._session.project.path:
            self.changed.emit(view)

    async def _resolve(self, file: File, rows: list[Row]) -> None:
        """Ask which rows to keep after another program changed the file."""
        _, theirs, mark = await self._read(*file)
        name = self._name() or file[1]
        answer = await choose(self.window(), name, _lines(rows), _lines(theirs))
        if answer == "mine":
            self._write(file, rows, mark)
        elif answer == "file":
            self._models[file].load(theirs)
            self._marks[file] = mark
            self._show_state()

    def _not_saved(self, file: File, rows: list[Row], problem: Problem) -> None:
        if problem.code == CHANGED:
            self._tasks.run("conflict", self._resolve(file, rows))
        elif file == self._file:
            self._reject(problem)
        else:
            self._session.problem_raised.emit(problem)

    def _build(self) -> None:
        self._table.setModel(self.model)
        self._table.horizontalHeader().sectionCountChanged.connect(self._fit)
        triggers = QAbstractItemView.EditTrigger
        self._table.setEditTriggers(
            triggers.DoubleClicked | triggers.EditKeyPressed | triggers.AnyKeyPressed
        )
        self._table.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
        line = hbox(self._which, STRETCH, spacing=8)
        for button, slot in self._tools:
            button.clicked.connect(lambda _=False, call=slot: call())
            line.addWidget(button)
        line.addWidget(self._save)
        self._save.clicked.connect(self.save)
        self._silent.clicked.connect(self._select_silent)
        column = vbox(line, (self._table, 1), parent=self, margins=(24, 8, 24, 16), spacing=8)
        foot = hbox((self._words, 1), self._silent)
        column.addLayout(foot)
        for keys, slot in (
            (QKeySequence.StandardKey.Undo, lambda: self.model.undo.undo()),
            (QKeySequence.StandardKey.Redo, lambda: self.model.undo.redo()),
            (QKeySequence.StandardKey.Delete, self._delete),
        ):
            shortcut = QShortcut(QKeySequence(keys), self)
            shortcut.activated.connect(slot)

    @Slot()
    def _fit(self) -> None:
        """Give the remaining width to the column with the longest text."""
        widths = [self._wanted(place) for place in range(self.model.columnCount())]
        column_widths = widths[: len(self.model.columns)]
        most = column_widths.index(max(column_widths)) if column_widths else 0
        for place, width in enumerate(widths):
            self._table.set_column(place, None if place == most else min(width, WIDEST), "text")

    def _wanted(self, place: int) -> int:
        """Return the width of the longest text in a column among the first rows, px."""
        model, sample = self.model, range(min(FITTED, self.model.rowCount()))
        words = [str(model.headerData(place, Qt.Orientation.Horizontal))]
        words += [model.index(row, place).data() for row in sample]
        return round(max(text_width(one, "label") for one in words)) + 32

    def _delete(self) -> None:
        rows = {index.row() for index in self._table.selectionModel().selectedIndexes()}
        self.model.remove(rows)

    def _import(self) -> None:
        dialog = QFileDialog(self, "Import scenarios", self._session.project.path)
        dialog.setNameFilters(["JSON Lines (*.jsonl *.json *.txt)", "All files (*)"])
        dialog.fileSelected.connect(self.import_file)
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()

    def import_file(self, path: str) -> None:
        """Append scenarios from a file; invalid lines are reported and skipped."""
        model = self.model

        async def read() -> tuple[list[Row], list[Problem]]:
            return await asyncio.to_thread(_read_file, Path(path))

        self._tasks.run("import", read(), lambda found: self._imported(model, found), self._reject)

    def _imported(self, model: ScenarioTableModel, answer: tuple[list[Row], list[Problem]]) -> None:
        rows, problems = answer
        model.take_in(rows)
        if problems:
            more = f" and {len(problems) - 1} more" if len(problems) > 1 else ""
            self._words.set_tone("bad")
            self._words.set_words(f"{problems[0].where}: {problems[0].message}{more}")

    @Slot(object)
    def _reject(self, problem: Problem) -> None:
        self._words.set_tone("bad")
        self._words.set_words(f"{problem.message} {problem.hint}".strip())

    @Slot()
    def _show_state(self) -> None:
        """Update the buttons; editing is disabled until the file is loaded."""
        model = self.model
        for part in (self._table, *(button for button, _ in self._tools)):
            part.setEnabled(model.loaded)
        self._save.setEnabled(model.dirty)
        self._show_silent()
        count = formatting.plural(len(model.rows), "scenario")
        self._words.set_tone("warn" if model.dirty else "muted")
        self._words.set_words(f"{count} · not saved" if model.dirty else count)


async def _all_pages(ask: Callable[[int], Awaitable[Any]]) -> list[Any]:
    """Load all items of a paged list; `ask(offset)` loads a page."""
    items: list[Any] = []
    while True:
        page = await ask(len(items))
        items += page.items
        if len(items) >= page.total or not page.items:
            return items


def _lines(rows: list[Row]) -> str:
    return "\n".join(json.dumps(row, ensure_ascii=False) for row in rows)


def _read_file(path: Path) -> tuple[list[Row], list[Problem]]:
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        message = f"{path.name} is not UTF-8 text: byte {error.start} is invalid."
        return [], [Problem(code="scenarios.encoding", message=message, where=path.name)]
    except OSError as error:
        return [], [Problem(code="scenarios.file", message=str(error), where=path.name)]
    return read_jsonl(text, path.name)
