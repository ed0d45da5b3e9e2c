"""The scenarios as an editable table: add, delete, import, undo, save."""

import asyncio
from pathlib import Path

from PySide6.QtCore import Signal
from PySide6.QtGui import QKeySequence, QShortcut
from PySide6.QtWidgets import QAbstractItemView, QFileDialog, QHBoxLayout, QVBoxLayout, QWidget

from engine.protocol.problems import Problem
from engine.protocol.records import Split
from engine.protocol.requests import WriteScenarios
from studio import figures
from studio.models.scenarios import Row, ScenarioTableModel, read_jsonl
from studio.session import Session
from studio.tasks import TaskScope
from studio.widgets.buttons import Button
from studio.widgets.segmented import Segmented
from studio.widgets.table import Table
from studio.widgets.text import Text

SPLITS: tuple[Split, ...] = ("train", "validation")
PAGE = 1000


class ScenariosTab(QWidget):
    """Nothing is written before Save; everything can be undone."""

    changed = Signal(object)

    def __init__(self, session: Session, tasks: TaskScope, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._session, self._tasks = session, tasks
        self._loaded: tuple[str, Split] | None = None
        self.model = ScenarioTableModel(self)
        self._which = Segmented(["Practise", "Test"], "Which scenarios")
        self._table = Table("Scenarios")
        self._words = Text("", "label", 400, "muted", elide=True)
        self._save = Button("Save", "outlined", icon="save", key="Ctrl S")
        self._build()
        self._which.chosen.connect(lambda _: self.load())
        self.model.undo.cleanChanged.connect(self._show_state)
        self.model.edited.connect(self._show_state)
        self.model.rejected.connect(self._reject)
        self.model.modelReset.connect(self._fit)

    @property
    def split(self) -> Split:
        return SPLITS[self._which.index()]

    def show_split(self, split: Split) -> None:
        self._which.set_index(SPLITS.index(split))
        self.load()

    def load(self) -> None:
        """Read the file through the engine, unless unsaved edits of it are on screen."""
        path, split = self._session.project.path, self.split
        if self._loaded == (path, split) and not self.model.undo.isClean():
            return
        self._words.set_words("Reading…")
        self._tasks.run("scenarios", self._read(path, split), self._show, self._reject)

    async def _read(self, path: str, split: Split) -> tuple[str, Split, list[Row]]:
        rows: list[Row] = []
        while True:
            page = await self._session.client.scenarios(path, split, len(rows), PAGE)
            rows += [scenario.data for scenario in page.items]
            if len(rows) >= page.total or not page.items:
                return path, split, rows

    def _show(self, answer: tuple[str, Split, list[Row]]) -> None:
        path, split, rows = answer
        self._loaded = path, split
        self.model.load(rows)
        self._show_state()

    def save(self) -> None:
        if self.model.undo.isClean() or self._loaded is None:
            return
        path, split = self._loaded
        request = WriteScenarios(items=self.model.rows)
        job = self._session.client.write_scenarios(path, split, request)
        self._tasks.run("save scenarios", job, self._saved, self._reject)

    def _saved(self, view: object) -> None:
        self.model.undo.setClean()
        self._session.said.emit(f"{figures.plural(len(self.model.rows), 'scenario')} saved.")
        self.changed.emit(view)

    def _build(self) -> None:
        self._table.setModel(self.model)
        triggers = QAbstractItemView.EditTrigger
        self._table.setEditTriggers(
            triggers.DoubleClicked | triggers.EditKeyPressed | triggers.AnyKeyPressed
        )
        self._table.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
        line = QHBoxLayout()
        line.setSpacing(8)
        line.addWidget(self._which)
        line.addStretch(1)
        for words, icon, slot in (
            ("Add", "plus", self.model.add),
            ("Delete", "trash-2", self._delete),
            ("Import JSONL", "import", self._import),
            ("Undo", "undo-2", self.model.undo.undo),
        ):
            button = Button(words, "quiet", icon=icon)
            button.clicked.connect(lambda _=False, call=slot: call())
            line.addWidget(button)
        line.addWidget(self._save)
        self._save.clicked.connect(self.save)
        column = QVBoxLayout(self)
        column.setContentsMargins(24, 8, 24, 16)
        column.setSpacing(8)
        column.addLayout(line)
        column.addWidget(self._table, 1)
        column.addWidget(self._words)
        for keys, slot in (
            (QKeySequence.StandardKey.Undo, self.model.undo.undo),
            (QKeySequence.StandardKey.Redo, self.model.undo.redo),
            (QKeySequence.StandardKey.Delete, self._delete),
        ):
            shortcut = QShortcut(QKeySequence(keys), self)
            shortcut.activated.connect(slot)

    def _fit(self) -> None:
        for place, name in enumerate(self.model.columns):
            last = place == len(self.model.columns) - 1
            self._table.set_column(place, None if last else 120 if name == "id" else 260, "text")

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
        """Append a file's objects; lines that are none are named and left out."""

        async def read() -> tuple[list[Row], list[Problem]]:

            return await asyncio.to_thread(_read_file, Path(path))

        self._tasks.run("import", read(), self._imported, self._reject)

    def _imported(self, answer: tuple[list[Row], list[Problem]]) -> None:
        rows, problems = answer
        self.model.take_in(rows)
        if problems:
            more = f" and {len(problems) - 1} more" if len(problems) > 1 else ""
            self._words.set_tone("bad")
            self._words.set_words(f"{problems[0].where}: {problems[0].message}{more}")

    def _reject(self, problem: Problem) -> None:
        self._words.set_tone("bad")
        self._words.set_words(f"{problem.message} {problem.hint}".strip())

    def _show_state(self) -> None:
        clean = self.model.undo.isClean()
        self._save.setEnabled(not clean)
        count = figures.plural(len(self.model.rows), "scenario")
        self._words.set_tone("muted" if clean else "warn")
        self._words.set_words(count if clean else f"{count} · not saved")


def _read_file(path: Path) -> tuple[list[Row], list[Problem]]:
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        message = f"{path.name} is not UTF-8 (byte {error.start})."
        return [], [Problem(code="scenarios.encoding", message=message, where=path.name)]
    except OSError as error:
        return [], [Problem(code="scenarios.file", message=str(error), where=path.name)]
    return read_jsonl(text, path.name)
