"""Controller of the sheets that create projects, available from everywhere in the window."""

from functools import cached_property
from pathlib import Path

from PySide6.QtCore import QObject

from engine.protocol.problems import Problem
from engine.protocol.records.runs import ProjectView
from engine.protocol.requests.drafts import EnvironmentData
from studio.actions.actions import Actions
from studio.main_window import MainWindow
from studio.pages.home.page import HomePage
from studio.pages.new_project.environment_sheet import EnvironmentSheet
from studio.pages.new_project.wizard import DescribeSheet
from studio.runtime.tasks import TaskScope
from studio.services.session import Session
from studio.store.projects.draft import ATTEMPTS

MEASURED = "train.validation_attempts"


class NewProjectController(QObject):
    """Controller of the wizard and of the sheet for environments; `close()` ends their jobs."""

    def __init__(
        self, window: MainWindow, session: Session, actions: Actions, workspace: Path
    ) -> None:
        super().__init__(window)
        self._window, self._session, self._workspace = window, session, workspace
        self._tasks = TaskScope(self)
        self._tasks.failed.connect(self._raise)
        actions.bind(
            project_describe=lambda: self.sheet.begin(),
            project_environment=lambda: self.environment.begin(),
        )

    @cached_property
    def sheet(self) -> DescribeSheet:
        """Wizard sheet, built on first use."""
        sheet = DescribeSheet(self._session, self._tasks, self._workspace, self._window.body)
        sheet.made.connect(self._made)
        return sheet

    @cached_property
    def environment(self) -> EnvironmentSheet:
        """Sheet for environments and tasks, built on first use."""
        sheet = EnvironmentSheet(self._session, self._tasks, self._workspace, self._window.body)
        sheet.made.connect(self._environment_made)
        return sheet

    def serve(self, home: HomePage) -> None:
        """Connect the Home page: a project whose draft is unfinished opens in this wizard, not in
        Setup."""
        home.writing_wanted.connect(lambda draft: self.sheet.go_on(draft))

    async def close(self) -> None:
        await self._tasks.close()

    def _made(self, view: ProjectView, measure: bool) -> None:
        self._tasks.run("open", self._open(view, measure))

    async def _open(self, view: ProjectView, measure: bool) -> None:
        await self._session.show_made(view)
        if measure:
            self._session.train("baseline", {MEASURED: ATTEMPTS}, show=False)
            self._session.notice.emit(
                f"{view.name} was created. Measuring its baseline; the header shows progress."
            )
        else:
            self._session.notice.emit(f"{view.name} was created. Measure its baseline, then train.")

    def _environment_made(self, view: ProjectView, data: EnvironmentData) -> None:
        words = f"{view.name}: {data.train} training scenarios, {data.validation} for validation."
        self._session.notice.emit(" ".join([words, *data.notes]))
        self._tasks.run("open", self._session.show_made(view))

    def _raise(self, name: str, problem: Problem) -> None:
        self._session.problem_raised.emit(problem)
