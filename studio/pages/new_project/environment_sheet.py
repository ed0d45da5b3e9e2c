"""Sheet that creates a project from an environment of verifiers or a task of Inspect: first the
folder, then, once the packages are installed, the scenarios from its data set."""

import json
from pathlib import Path

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from engine.protocol.problems import Problem
from engine.protocol.records.runs import ProjectView
from engine.protocol.requests.drafts import (
    BeginEnvironment,
    EnvironmentData,
    EnvironmentNames,
    ReadEnvironment,
)
from studio.pages.new_project.writer_fields import LABEL_PX
from studio.pages.tools.packages import AgentPackages
from studio.runtime.tasks import TaskScope
from studio.services.session import Session
from studio.store.projects import environment_form as form
from studio.widgets.cards.sheet import Sheet
from studio.widgets.controls.buttons import Button
from studio.widgets.forms.form import FormRow
from studio.widgets.forms.form_fields import SegmentedField, SpinField, SuggestField, TextField
from studio.widgets.layouts import STRETCH, add
from studio.widgets.text.text import Text

WIDTH_PX = 640
WORDS = {
    "verifiers": "An environment of the library verifiers becomes a project: its data set becomes "
    "scenarios, its reward functions become reward parts, and its own code runs each rollout.",
    "inspect": "A task of Inspect becomes a project: its data set becomes scenarios, its scorers "
    "become reward parts, and its own solver runs each rollout.",
}
NAMES = {"verifiers": "Environment", "inspect": "Task"}
PLACEHOLDERS = {
    "verifiers": "NAME on PyPI, or a folder",
    "inspect": "FILE.py@TASK, or PACKAGE/TASK",
}
HELP = {"verifiers": form.NAME_HELP, "inspect": form.TASK_HELP}
ARGUMENTS = {"verifiers": form.ARGUMENTS_HELP, "inspect": form.TASK_ARGUMENTS_HELP}
LIBRARY_HELP = "Library that the environment or task is written for."
PACKAGES = (
    "The project was created. Its packages get an environment of their own; installing them runs "
    "code of their authors. Read requirements.txt first."
)
USUAL, MOST = 500, 100_000
REQUIREMENTS = "requirements.txt"


class EnvironmentSheet(Sheet):
    """Sheet: `begin()` opens it. Emits `made(view, data)` for the new project with its scenarios:
    ProjectView and EnvironmentData."""

    made = Signal(object, object)

    def __init__(self, session: Session, tasks: TaskScope, workspace: Path, host: QWidget) -> None:
        super().__init__("New project from verifiers or Inspect", host, WIDTH_PX)
        self._session, self._tasks, self._workspace = session, tasks, workspace
        self._view: ProjectView | None = None
        self.library = SegmentedField(
            "Library", [("verifiers", "verifiers"), ("inspect", "Inspect")]
        )
        self._found: list[str] = []
        """Names of environments of verifiers that need no search."""
        self.name = SuggestField("Environment", PLACEHOLDERS["verifiers"])
        self.arguments = TextField("Arguments", '{"num_examples": 100}', mono=True)
        self.folder = TextField("Project name", "my-environment")
        self.scenarios = SpinField("Scenarios", 1, MOST, step=100)
        self._rows = {
            key: FormRow(key, label, field, help=help, label_px=LABEL_PX)
            for key, label, field, help in (
                ("library", "Library", self.library, LIBRARY_HELP),
                ("name", "Environment", self.name, form.NAME_HELP),
                ("arguments", "Arguments", self.arguments, form.ARGUMENTS_HELP),
                ("folder", "Project name", self.folder, "Name of the project and its folder."),
                ("scenarios", "Scenarios", self.scenarios, form.SCENARIOS_HELP),
            )
        }
        self._words = Text("", "label", 400, "muted", wrap=True)
        self._hint = Text(PACKAGES, "label", 400, "muted", wrap=True)
        self.packages = AgentPackages(session, tasks, self._requirements)
        self._problem = Text("", "label", 400, "bad", wrap=True, selectable=True)
        self._note = Text("", "label", 400, "muted", elide=True)
        self._main = Button("Create", "primary", icon="check", height=32)
        self._build()
        self._forget()

    def begin(self) -> None:
        """Open the sheet; an unfinished project stays in it."""
        if self._session.connected:
            names = self._session.client.environment_names()
            self._tasks.run("environment names", names, self._take_names)
        self.packages.look()
        self._show()
        self.open()
        self.name.setFocus()

    def _take_names(self, found: EnvironmentNames) -> None:
        self._found = found.names
        self._show_library()

    def _forget(self) -> None:
        self._view = None
        self.library.set_value("verifiers")
        self._show_library()
        for field, value in ((self.name, ""), (self.arguments, ""), (self.folder, "")):
            field.set_value(value)
        self.scenarios.set_value(USUAL)
        for row in self._rows.values():
            row.set_locked("")
        self._refuse(None)

    def _requirements(self) -> tuple[str, str]:
        return (self._view.path, REQUIREMENTS) if self._view else ("", "")

    # User actions

    def _press(self) -> None:
        self._refuse(None)
        request = self._request()
        if request is None:
            return
        client = self._session.client
        if self._view is None:
            self._main.set_busy("Finding the environment")
            call = client.begin_environment(request)
            self._tasks.run("begin environment", call, self._created, self._refused)
            return
        self._main.set_busy("Reading the data set")
        scenarios = ReadEnvironment(folder=request.folder, scenarios=self.scenarios.value())

        async def read() -> EnvironmentData:
            await client.begin_environment(request)  # the arguments may have changed
            return await client.read_environment(scenarios)

        self._tasks.run("read environment", read(), self._read, self._refused)

    def _request(self) -> BeginEnvironment | None:
        """Return the request to the engine, or None, with errors shown, if the form is invalid."""
        name, text = self.name.value().strip(), self.arguments.value()
        folder = self.folder.value().strip()
        problems = {
            "name": form.environment_problem(name, self.library.value()),
            "arguments": form.arguments_problem(text),
            "folder": "" if self._view else form.folder_problem(folder, self._session.projects),
        }
        for key, words in problems.items():
            if words or not self._view:
                self._rows[key].set_problem(words)
        if wrong := next((key for key, words in problems.items() if words), ""):
            self._rows[wrong].field.setFocus()
            return None
        return BeginEnvironment(
            library=self.library.value(),
            folder=str(self._workspace / folder),
            name=name,
            arguments=json.loads(text) if text.strip() else {},
        )

    def _created(self, view: ProjectView) -> None:
        self._main.set_busy(None)
        self._view = view
        self.library.setEnabled(False)
        self.name.setEnabled(False)
        self._rows["folder"].set_locked(f"Project folder: {view.path}")
        self.packages.look()
        self._session.refresh()
        self._show()

    def _read(self, data: EnvironmentData) -> None:
        self._main.set_busy(None)
        view = self._view
        self._forget()
        self.close_sheet()
        self.made.emit(view, data)

    def _refused(self, problem: Problem) -> None:
        """Show a problem beside its field, else above the buttons."""
        self._main.set_busy(None)
        words = f"{problem.message} {problem.hint}".strip()
        key = form.field_of(problem.code)
        if key and self._rows[key].field.isEnabled():
            self._rows[key].set_problem(words)
            self._rows[key].field.setFocus()
        else:
            self._refuse(words)

    # State

    def _refuse(self, words: str | None) -> None:
        self._problem.set_words(words or "")
        self._problem.setVisible(bool(words))

    def _show(self) -> None:
        is_created = self._view is not None
        self._hint.setVisible(is_created)
        lacking = self.packages.lacking
        is_ready = self.packages.known and not lacking
        self._main.set_words("Read data set" if is_created else "Create")
        self._main.setEnabled(self._session.connected and (not is_created or is_ready))
        self._note.set_words(f"{lacking}." if is_created and lacking else "")

    def _show_library(self) -> None:
        library = self.library.value()
        self._words.set_words(WORDS[library])
        self._rows["name"].set_label(NAMES[library])
        self._rows["name"].set_help(HELP[library])
        self._rows["arguments"].set_help(ARGUMENTS[library])
        self.name.line.setPlaceholderText(PLACEHOLDERS[library])
        self.name.set_choices(self._found if library == "verifiers" else [])

    def _edited(self, key: str, _: object) -> None:
        self._rows[key].set_problem("")
        if key == "library":
            self._rows["name"].set_problem("")
            self._show_library()
        if key == "name":
            self.folder.set_value(form.folder_of(self.name.value()))

    def _build(self) -> None:
        add(self.body, self._words, *self._rows.values())
        add(self.body, self._hint, self.packages, self._problem, STRETCH)
        add(self.foot, (self._note, 1), self._main)
        for row in self._rows.values():
            row.edited.connect(self._edited)
        self.packages.changed.connect(self._show)
        self._main.clicked.connect(self._press)
