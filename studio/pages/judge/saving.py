"""Saving of the rubric as a new version, with a dialog if the file has changed."""

from PySide6.QtCore import QObject, Signal

from engine.protocol.problems import Problem
from engine.protocol.records.judging import RubricView
from engine.protocol.requests.runs import SaveRubric
from studio.pages.conflict_dialog import CHANGED, choose
from studio.pages.judge.rubric_editor import RubricEditor
from studio.runtime.tasks import TaskScope
from studio.services.session import Session


class RubricSaving(QObject):
    """Controller that saves the rubric; emits `saved(path, view)` or `refused(problem)`."""

    saved = Signal(str, object)
    refused = Signal(object)

    def __init__(self, session: Session, tasks: TaskScope, editor: RubricEditor) -> None:
        super().__init__(editor)
        self._session, self._tasks, self._editor = session, tasks, editor
        editor.save_wanted.connect(self.save)

    def save(self, source: str, force: bool = False) -> None:
        """Write the rubric. Ask if the file has changed since it was read; `force` overwrites
        it."""
        session, path = self._session, self._session.project.path
        request = SaveRubric(source=source, read="" if force else self._editor.read)

        async def write() -> RubricView:
            view = await session.client.save_rubric(path, request)
            if session.project.path == path:  # its file fingerprints have changed
                session.show_project(await session.client.project(path))
            return view

        def failed(problem: Problem) -> None:
            if problem.code == CHANGED and path == session.project.path:
                self._tasks.run("conflict", self._resolve(path, source))
            else:
                self.refused.emit(problem)

        job = self._tasks.run("save", write(), lambda view: self.saved.emit(path, view), failed)
        session.write_first(job)

    async def _resolve(self, path: str, source: str) -> None:
        """Ask which text to keep after another program changed the rubric file."""
        session = self._session
        theirs = await session.client.rubric(path)
        project = session.project.view
        name = project.config.judge.rubric if project and project.config else "rubric.md"
        answer = await choose(self._editor.window(), name, source, theirs.source)
        if path != session.project.path:
            return
        if answer == "mine":
            self.save(source, force=True)
        elif answer == "file":
            self._editor.show_source(theirs.source)
            self._editor.show_view(theirs, name)
