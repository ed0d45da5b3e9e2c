"""Pending edits of the Setup page, validated by the engine before they are written. Each response
belongs to the project of its request and is shown only while that project is open."""

from collections.abc import Callable
from typing import Any, Protocol

from engine.protocol.problems import Problem
from engine.protocol.records.runs import ProjectView
from engine.protocol.requests.runs import EditProject
from studio.pages.conflict_dialog import CHANGED, choose
from studio.pages.setup.tabs.toml import TomlTab
from studio.runtime.tasks import TaskScope
from studio.services.session import Session

FILE = "project.toml"


class Part(Protocol):
    """Widget with editable settings."""

    def set_problem(self, key: str, words: str) -> None:
        """Show why the edit of the setting `key` was refused; empty words clear the problem."""


class Edits:
    """Edits of one project: `turn(path)` selects it, `put`, `write` and `save` send changes. Calls
    `moved()` when `under_way()` changes."""

    def __init__(self, session: Session, tasks: TaskScope, moved: Callable[[], None]) -> None:
        self._session, self._tasks, self._moved = session, tasks, moved
        self._pending: dict[str, dict[str, Any]] = {}
        self.path = ""
        """Path of the open project."""

    def turn(self, path: str) -> None:
        """Switch to the project at `path`; pending edits of the previous one are forgotten."""
        self.path = path
        self._pending.clear()

    def under_way(self) -> dict[str, Any]:
        """Return key → value of all settings that are not written yet."""
        return {key: value for values in self._pending.values() for key, value in values.items()}

    def put(self, part: Part, key: str, value: Any) -> None:
        """Write one setting (dotted key); a refusal is shown in `part`."""
        self.write(part, key, {key: value})

    def write(self, part: Part, key: str, values: dict[str, Any]) -> None:
        """Write settings (key → value); a refusal is shown at `key` in `part`."""
        path = self.path
        self._pending[key] = values
        self._moved()

        def answered(words: str) -> bool:
            """Handle a response; returns whether its project is still open."""
            if path != self.path:
                return False
            self._pending.pop(key, None)
            part.set_problem(key, words)
            return True

        def written(view: ProjectView) -> None:
            answered("")
            self._show(view)

        def refused(problem: Problem) -> None:
            if answered(problem.message):
                self._moved()
            else:
                self._session.problem_raised.emit(problem)

        edit = self._session.client.edit_project(path, EditProject(values=values))
        name = f"edit {path} {type(part).__name__} {key}"
        self._session.write_first(self._tasks.run(name, edit, written, refused))

    def save(self, tab: TomlTab, path: str, text: str, force: bool = False) -> None:
        """Write the project.toml `text` of the project at `path`. Ask if the file has changed since
        it was read; `force` overwrites it. `tab` shows the result."""
        read = "" if force else tab.read

        def saved(view: ProjectView) -> None:
            tab.saved(path, text, view.files.get(FILE, ""))
            self._show(view)
            self._session.notice.emit("project.toml saved.")

        def refused(problem: Problem) -> None:
            if path == self.path and problem.code == CHANGED:
                self._tasks.run("conflict", self._resolve(tab, path, text))
            elif path == self.path:
                tab.refuse(text, problem)
            else:
                self._session.problem_raised.emit(problem)

        edit = self._session.client.edit_project(path, EditProject(toml=text, read=read))
        self._session.write_first(self._tasks.run(f"save {path}", edit, saved, refused))

    async def _resolve(self, tab: TomlTab, path: str, text: str) -> None:
        """Show the difference to the file on disk and ask which text to keep."""
        self._show(await self._session.client.project(path))
        answer = await choose(tab.window(), FILE, text, tab.file_text)
        if answer == "mine":
            self.save(tab, path, text, force=True)
        elif answer == "file" and path == self.path:
            tab.discard()

    def _show(self, view: ProjectView) -> None:
        if view.path == self._session.project.path:
            self._session.show_project(view)
        else:
            self._session.refresh()
