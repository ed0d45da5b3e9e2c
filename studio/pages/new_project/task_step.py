"""Step 1 of the wizard: task description, writer model, number of scenarios, tools."""

from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from engine.protocol.problems import Problem
from engine.protocol.records.judging import JudgeOption
from engine.protocol.records.runs import ProjectView
from engine.protocol.requests.drafts import LEAST, DescribeTask, Writer
from studio.pages.new_project.tools import ToolsPart
from studio.pages.new_project.writer_fields import LABEL_PX, WriterFields
from studio.runtime.tasks import TaskScope
from studio.services.session import Session
from studio.store.projects import draft
from studio.widgets.forms.form import FormRow
from studio.widgets.forms.form_fields import SpinField, TextField
from studio.widgets.forms.text_area import ParagraphField
from studio.widgets.layouts import STRETCH, add, vbox
from studio.widgets.text.text import Text

WORDS = (
    "Describe a task; no data is needed. A model writes a system prompt, a rubric and "
    "scenarios at five difficulties; one fifth is held out for validation. You "
    "review everything before training."
)
EXAMPLE = (
    "A customer of a bicycle shop writes a short message. The model answers in at most three "
    "sentences, says what to do next, and never promises a date."
)
USUAL_COUNT, MOST = 60, 2000
PRICE_UNKNOWN = "judge.price_unknown"


class TaskStep(QWidget):
    """Form of step 1; `request()` returns its values."""

    edited = Signal()

    def __init__(self, session: Session, tasks: TaskScope, workspace: Path, host: QWidget) -> None:
        super().__init__()
        self._session, self._workspace = session, workspace
        self.name = TextField("Name", "polite-answers")
        self.description = ParagraphField("Task description", EXAMPLE, least_px=120)
        self.count = SpinField("Scenarios", LEAST, MOST, step=10)
        self.writer = WriterFields("Writer model")
        self.tools = ToolsPart(session, tasks, host, self._folder)
        self._rows = {
            key: FormRow(key, label, field, help=help, label_px=LABEL_PX)
            for key, label, field, help in (
                ("name", "Name", self.name, "Name of the project and its folder."),
                (
                    "description",
                    "Task description",
                    self.description,
                    draft.description_problem(""),
                ),
                (
                    "count",
                    "Scenarios",
                    self.count,
                    ("Number of scenarios; one fifth is used for validation."),
                ),
            )
        }
        self._problem = Text("", "label", 400, "bad", wrap=True, selectable=True)
        self._build()

    def begin(self) -> None:
        """Clear the form and restore the last writer model."""
        self._set("", "")
        self.count.set_value(USUAL_COUNT)
        last = self._session.settings.current.writer
        self.writer.show_writer(Writer.model_validate(last) if last else Writer(model=""))
        self.tools.begin()

    def go_on(self, view: ProjectView) -> None:
        """Fill the form from an unfinished project."""
        self.begin()
        self._set(Path(view.path).name, view.description)
        if view.config is not None and view.config.agent.requirements:
            self.tools.begin(view.path)
        self._lock()

    def set_options(self, options: Sequence[JudgeOption], used: Sequence[str]) -> None:
        """Set the suggestions for the writer model: `used` before, then those found here."""
        self.writer.set_options(options, used)

    def refuse(self, problem: Problem | None) -> None:
        """Show why nothing was generated; None clears the message."""
        words = f"{problem.message} {problem.hint}".strip() if problem else ""
        if problem is not None and problem.code == PRICE_UNKNOWN:
            self.writer.ask_prices()
            words = f"{problem.message} Enter the model's prices above."
        self._problem.set_words(words)
        self._problem.setVisible(bool(words))

    def request(self) -> DescribeTask | None:
        """Return the request to the engine, or None if the form is invalid."""
        self.refuse(None)
        folder, writer = self._folder(), self.writer.writer()
        text = self.description.value()
        error = draft.description_problem(text)
        self._rows["description"].set_problem(error)
        if error:
            self.description.setFocus()
        elif folder and (lacking := self.tools.problem()):
            self._problem.set_words(lacking)
            self._problem.show()
            error = lacking
        if not folder or writer is None or error:
            return None
        wanted = self.tools.wanted.isChecked()
        return DescribeTask(
            folder=folder,
            description=text.strip(),
            writer=writer,
            count=self.count.value(),
            tools=self.tools.servers.offered if wanted else [],
        )

    def _folder(self) -> str:
        """Return the project folder; empty, with an error shown, if the name is invalid."""
        name = self.name.value().strip()
        error = draft.name_problem(name, self._session.projects)
        if error:
            self._rows["name"].set_problem(error)
            self.name.setFocus()
        return "" if error else str(self._workspace / name)

    def _set(self, name: str, description: str) -> None:
        self.name.set_value(name)
        self.description.set_value(description)
        self._rows["name"].set_locked("")
        self._rows["description"].set_problem("")
        self.refuse(None)

    def _lock(self) -> None:
        self._rows["name"].set_locked(f"Project folder: {self._workspace / self.name.value()}")

    def _build(self) -> None:
        column = vbox(Text(WORDS, "label", 400, "muted", wrap=True), parent=self, spacing=10)
        for key in ("name", "description"):
            column.addWidget(self._rows[key])
        add(column, self.writer, self._rows["count"], self.tools, self._problem, STRETCH)
        for row in self._rows.values():
            row.edited.connect(self._edited)
        self.writer.edited.connect(self.edited)
        self.tools.changed.connect(self.edited)
        self.tools.created.connect(self._lock)

    def _edited(self, key: str, _: object) -> None:
        self._rows[key].set_problem("")
        self.edited.emit()
