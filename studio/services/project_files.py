"""Detection of changes that other programs make to a project's files.

The engine is polled for fingerprints (it caches them by size and modification time). A local file
system watch would miss files of a remote engine, network mounts, and editors that replace a file.
"""

from PySide6.QtCore import QObject, QTimer

from engine.protocol.problems import Problem
from engine.protocol.records.runs import ProjectView
from engine.protocol.requests.runs import ProjectFiles
from studio.runtime.tasks import TaskScope
from studio.services.project_opening import read_project
from studio.services.session import Session

EVERY_MS = 2000


class ProjectFilesService(QObject):
    """Reloads the open project and notifies the person when another program has changed its
    files."""

    def __init__(self, session: Session, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._session = session
        self._path, self._known = "", dict[str, str]()
        self._tasks = TaskScope(self)
        self._timer = QTimer(self)
        self._timer.setInterval(EVERY_MS)
        self._timer.timeout.connect(self.look)
        self._timer.start()
        session.project_changed.connect(self._take)

    def look(self) -> None:
        """Start a check by fingerprints whether files of the open project have changed; skipped
        while disconnected or writing. If the engine does not respond, the next poll tries again."""
        session = self._session
        ready = session.connected and not session.writing and not self._tasks.busy("files")
        if ready and self._known:
            self._tasks.run("files", self._read(self._path), self._compare, self._unanswered)

    async def close(self) -> None:
        self._timer.stop()
        await self._tasks.close()

    def _take(self) -> None:
        """Store the file fingerprints of the project that was just loaded."""
        if (view := self._session.project.view) is not None:
            self._tasks.cancel("files")
            self._path, self._known = view.path, dict(view.files)

    async def _read(self, path: str) -> tuple[str, ProjectFiles]:
        return path, await self._session.client.project_files(path)

    def _compare(self, found: tuple[str, ProjectFiles]) -> None:
        path, answer = found
        if path != self._path or self._session.writing:
            return
        previous, self._known = self._known, dict(answer.files)
        names = [name for name, now in answer.files.items() if previous.get(name, now) != now]
        if names:
            self._tasks.run("project", self._read_again(path), lambda view: self._show(view, names))

    async def _read_again(self, path: str) -> ProjectView:
        return await read_project(self._session.client, path)

    def _show(self, view: ProjectView, names: list[str]) -> None:
        if view.path == self._session.project.path:
            self._session.show_project(view)
            self._session.notice.emit(changed_words(names))

    def _unanswered(self, problem: Problem) -> None:
        """Ignore a failed request; the next poll tries again."""


def changed_words(names: list[str]) -> str:
    """Describe the change: `project.toml and agent.py were changed by another program.`"""
    listed = " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
    return f"{listed} {'were' if len(names) > 1 else 'was'} changed by another program."
