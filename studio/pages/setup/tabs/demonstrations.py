"""Demonstrations tab: SFT files with counts, invalid lines, settings, and Train."""

from typing import Any

from PySide6.QtCore import Signal, Slot
from PySide6.QtWidgets import QSizePolicy, QWidget

from engine.protocol.config.project import ProjectConfig
from engine.protocol.problems import Problem
from engine.protocol.records.demonstrations import Demonstrations, SelectDemonstrations, Selection
from engine.protocol.records.runs import ACTIVE_STATES
from engine.protocol.requests.runs import StartEvaluation
from studio.models.demonstrations import BadLineModel, FileTableModel
from studio.pages.setup.form.fields import make_field, specs, value_at
from studio.pages.setup.teacher_sheet import TeacherSheet
from studio.runtime.tasks import TaskScope
from studio.services.session import Session
from studio.store.projects import demonstrations as words
from studio.text import formatting
from studio.widgets.cards.card import Card
from studio.widgets.cards.key_values import KeyValues
from studio.widgets.controls.buttons import Button
from studio.widgets.forms.form import FormRow
from studio.widgets.layouts import STRETCH, hbox, vbox
from studio.widgets.tables.table import Table
from studio.widgets.text.text import Text

SETTINGS = ("sft.epochs", "sft.batch_size", "sft.lr", "sft.held_out", "sft.skip_bad_lines")
FILE_WIDTHS = (None, 84, 280, 60, 52, 80, 80)
ROW_PX, HEAD_PX, LABEL_PX, WIDEST_CARD = 32, 30, 104, 980


class DemonstrationsTab(QWidget):
    """Demonstrations tab; emits `edited(key, value)` and `train_wanted()`."""

    edited = Signal(str, object)
    train_wanted = Signal()

    def __init__(
        self, session: Session, tasks: TaskScope, sheet: TeacherSheet, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self._session, self._tasks, self._sheet = session, tasks, sheet
        self._teacher_run = ""
        """Id of the teacher's run."""
        self.files, self.bad = FileTableModel(self), BadLineModel(self)
        self._file_table = Table("Demonstration files", row_px=ROW_PX)
        self._bad_table = Table("Invalid lines", row_px=ROW_PX)
        self._words = Text("", "label", 400, "muted", wrap=True)
        self._bad_words = Text("", "label", 500, "bad", wrap=True)
        self._facts = KeyValues(2)
        self._rows: dict[str, FormRow] = {}
        self._teacher = Button("From a teacher…", "outlined", icon="sparkles")
        self._own = Button("From this run", "quiet", icon="star")
        self._again = Button("Reload", "quiet", icon="refresh-cw")
        self.train = Button("Train on demonstrations", "primary", icon="play", height=32)
        self._build()
        self._wire()

    def load(self) -> None:
        """Request the contents of all demonstration files from the engine."""
        if not self._session.project.path or not self._session.connected:
            return
        self._words.set_tone("muted")
        self._words.set_words("Loading…")
        ask = self._session.client.demonstrations(self._session.project.path)
        self._tasks.run("demonstrations", ask, self._show, self._refuse)

    def show_config(self, config: ProjectConfig) -> None:
        for key, row in self._rows.items():
            row.show_stored(value_at(config, key))

    def set_problem(self, key: str, words: str) -> None:
        self._rows[key].answer(words)

    def finish(self) -> None:
        """Commit text that is being edited."""
        for row in self._rows.values():
            row.entry.finish()

    def forget(self) -> None:
        """Clear the tab before a change of project."""
        for row in self._rows.values():
            row.entry.forget()

    def open_teacher(self) -> None:
        """Open the sheet that records demonstrations of a teacher model."""
        view = self._session.project.view
        if view is not None and view.config is not None:
            counts = {info.split: info.count for info in view.splits}
            self._sheet.show_project(view.config, counts.get("train", 0))
            self._sheet.open()

    def _build(self) -> None:
        self._file_table.setModel(self.files)
        self._bad_table.setModel(self.bad)
        for column, width in enumerate(FILE_WIDTHS):
            self._file_table.set_column(column, width, "text" if column < 3 else "figure")
        for column, width in enumerate((190, 72, None)):
            self._bad_table.set_column(column, width, "figure" if column == 1 else "text")
        line = hbox(self._teacher, self._own, self._again, STRETCH, self.train, spacing=8)
        whole = vbox(
            line,
            self._words,
            self._file_table,
            self._bad_words,
            (self._bad_table, 1),
            self._settings(),
            parent=self,
            margins=(24, 8, 24, 16),
            spacing=12,
        )
        self._room = QWidget()
        whole.addWidget(self._room, 1)

    def _settings(self) -> Card:
        card = Card("SFT settings", "more under Form → Advanced → SFT")
        card.setMaximumWidth(WIDEST_CARD)
        card.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
        card.body.addWidget(self._facts)
        known = {spec.key: spec for spec in specs() if spec.key in SETTINGS}
        columns = hbox(spacing=28)
        for part in (SETTINGS[:3], SETTINGS[3:]):
            side = vbox(spacing=8)
            for key in part:
                spec = known[key]
                help, field = f"{spec.help}\n\n{key}", make_field(spec)
                row = FormRow(key, spec.label, field, help=help, label_px=LABEL_PX)
                self._rows[key] = row
                row.entered.connect(self.edited)
                side.addWidget(row)
            side.addStretch(1)
            columns.addLayout(side, 1)
        card.body.addLayout(columns)
        return card

    def _wire(self) -> None:
        self._teacher.clicked.connect(self.open_teacher)
        self._own.clicked.connect(self._take_own)
        self._again.clicked.connect(self.load)
        self.train.clicked.connect(self.train_wanted)
        self._sheet.ordered.connect(self._ask_teacher)
        self._session.runs_changed.connect(self.show_run)

    # Files

    def _show(self, found: Demonstrations) -> None:
        view = self._session.project.view
        skips = bool(view and view.config and view.config.sft.skip_bad_lines)
        empty = words.is_empty(found)
        self.files.set_rows(found.files)
        self.bad.set_rows(words.bad_lines(found))
        self._bad_words.set_words(words.bad_words(found.files, skips))
        self._bad_words.set_tone("warn" if skips else "bad")
        self._facts.set_values(words.facts_of(found))
        refused = words.ready_words(found) if not self.bad.rows else ""
        self._words.set_tone("bad" if refused and not empty else "muted")
        self._words.set_words(words.EMPTY if empty else refused)
        self._words.setVisible(empty or bool(refused))
        for part in (self._bad_words, self._bad_table):
            part.setVisible(bool(self.bad.rows))
        self._room.setVisible(not self.bad.rows)
        self._file_table.setVisible(not empty)
        self._file_table.setFixedHeight(HEAD_PX + ROW_PX * len(found.files))
        self.train.set_words("Train on demonstrations", formatting.plural(found.updates, "update"))
        self.train.setEnabled(found.problem is None and self._session.connected)
        self.show_run()

    @Slot()
    def show_run(self) -> None:
        """Show the "Best of" button if the run has trajectories, and the progress of a teacher."""
        if not self.isVisible():
            return
        self._follow_teacher()
        run = self._session.run.summary
        self._own.setVisible(bool(run and run.trajectories))
        if run is not None:
            self._own.set_words(f"Best of {run.name}")

    def _refuse(self, problem: Problem) -> None:
        self._words.show()
        self._words.set_tone("bad")
        self._words.set_words(f"{problem.message} {problem.hint}".strip())
        self.train.setEnabled(False)

    # Sources

    def _ask_teacher(self, request: StartEvaluation) -> None:
        session = self._session

        async def work() -> Any:
            await session.lend_keys(request.models)
            return await session.client.start_evaluation(request)

        def show(run: Any) -> None:
            self._sheet.close_started()
            session.take_run(run)
            if request.project != session.project.path:
                return
            if run.state == "finished":
                session.notice.emit(
                    "All teacher replies were cached, so the demonstrations cost nothing."
                )
                self.load()
            else:
                self._teacher_run = run.id
                self.show_run()

        def refused(problem: Problem) -> None:
            self._sheet.refuse(problem)
            if not self._sheet.is_open():
                session.problem_raised.emit(problem)

        self._tasks.run("teacher", work(), show, refused)

    def _follow_teacher(self) -> None:
        run = self._session.runs.summary(self._teacher_run) if self._teacher_run else None
        if run is None:
            return
        if run.state in ACTIVE_STATES or run.state == "queued":
            message = f"{run.name}: {run.trajectories} of {run.attempts} teacher rollouts done."
            self._words.set_tone("muted")
            self._words.set_words(message)
            self._words.show()
        else:
            self._teacher_run = ""
            self.load()

    def _take_own(self) -> None:
        """Save the best trajectory of each scenario of the selected run."""
        run = self._session.run.summary
        if run is None:
            return

        def kept(found: Selection) -> None:
            left = sum(found.left_out.values())
            message = f"{formatting.plural(found.kept, 'demonstration')} kept, {left} excluded."
            self._session.notice.emit(message)
            self.load()

        ask = self._session.client.demonstrate(run.id, SelectDemonstrations())
        self._tasks.run("own", ask, kept, self._session.problem_raised.emit)
